// The live feed: rows as they are recorded, a bounded number of them, drawn at most once a frame.
"use strict";
document.addEventListener("DOMContentLoaded", () => {
  const body = document.getElementById("feed"), state = document.getElementById("live-state");
  const template = document.getElementById("feed-row");
  const pause = document.getElementById("pause"), note = document.getElementById("feed-skipped");
  const SHOWN = 120, ICONS = { allow: "allow", sanitize: "change", require_approval: "wait", block: "block" };
  if (!body || !window.EventSource) return;
  const icons = body.dataset.icons, waiting = [];
  let newest = Number(body.dataset.newest || -1), paused = false, drawing = false, skipped = 0, source = null;

  const say = (text, kind) => { state.textContent = text; state.className = `live-dot ${kind}`; };

  // Every value goes in as text: names in a row are a caller's words.
  const build = (row) => {
    const line = template.content.cloneNode(true).querySelector("tr");
    const fill = (name, text) => { line.querySelector(`[data-f=${name}]`).textContent = text; };
    const at = line.querySelector("time");
    at.dateTime = row.time;
    window.aegis.localise(at);
    const tag = line.querySelector(".tag");
    if (row.decision) tag.classList.add(row.decision);
    tag.querySelector("use").setAttribute("href", `${icons}#${ICONS[row.decision] || "note"}`);
    fill("word", row.word);
    fill("agent", row.agent);
    fill("tool", row.tool || row.kind);
    fill("summary", row.summary);
    const risk = line.querySelector("[data-f=risk]");
    risk.textContent = row.risk;
    if (row.risk) risk.classList.add(row.risk);
    const link = line.querySelector("a");
    const id = link.dataset.to === "calls" ? row.id : row.approval; // who may not read receipts is led to held calls
    if (id) link.href = `/${link.dataset.to}/${encodeURIComponent(id)}`;
    line.classList.add("new");
    return line;
  };

  const draw = () => {
    drawing = false;
    if (paused) return;
    const rows = waiting.splice(0);
    if (!rows.length) return;
    const empty = document.getElementById("feed-empty");
    if (empty) empty.remove();
    const fresh = document.createDocumentFragment();
    rows.reverse().forEach((row) => fresh.append(build(row)));
    body.prepend(fresh);
    while (body.rows.length > SHOWN) body.deleteRow(-1);
    if (note) note.textContent = skipped ? `${skipped} more went by` : "";
  };

  const take = (event) => {
    const row = JSON.parse(event.data);
    if (row.index <= newest) return;
    newest = row.index;
    waiting.push(row);
    if (waiting.length > SHOWN) { waiting.shift(); skipped += 1; }
    if (!drawing && !paused) { drawing = true; requestAnimationFrame(draw); }
  };

  const open = () => {
    source = new EventSource(`/live${location.search}`);
    source.onopen = () => say(paused ? "paused" : "live", paused ? "" : "on");
    source.onerror = () => say("reconnecting", "off");
    source.addEventListener("row", take);
    source.addEventListener("lost", () => location.reload());
    source.addEventListener("ended", () => location.reload());
  };

  pause.addEventListener("click", () => {
    paused = !paused;
    pause.textContent = paused ? "Go on" : "Pause";
    pause.setAttribute("aria-pressed", String(paused));
    say(paused ? "paused" : "live", paused ? "" : "on");
    if (!paused) draw();
  });
  window.addEventListener("pagehide", () => source && source.close());
  open();
  setInterval(() => { if (!document.hidden && !paused) window.aegis.refresh("#figures"); }, 5000);
});
