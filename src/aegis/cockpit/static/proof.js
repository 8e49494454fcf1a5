// The proof that a receipt is in the log, computed here: RFC 9162 (2.1.3.2, 2.1.4.2) and C2SP signed notes.
// What this browser saw first (the log's key, the last checkpoint) it keeps, so that another log would be noticed.
"use strict";
document.addEventListener("DOMContentLoaded", async () => {
  const box = document.getElementById("proof");
  if (!box) return;
  const list = document.getElementById("proof-steps"), state = document.getElementById("proof-state");
  list.replaceChildren();
  const step = (ok, text) => {
    const item = document.createElement("li"), tag = document.createElement("span");
    tag.className = `tag ${ok ? "ok" : "bad"}`;
    tag.textContent = ok ? "holds" : "fails";
    item.append(tag, ` ${text}`);
    list.append(item);
    return ok;
  };
  const verdict = (kind, text) => {
    const tag = document.createElement("span");
    tag.className = `tag ${kind}`;
    tag.textContent = text;
    state.replaceChildren(tag);
  };
  if (!window.crypto || !crypto.subtle) {
    verdict("warn", "not checked");
    list.textContent = "This browser computes hashes on secure connections alone: open the cockpit over TLS or on the gateway's own machine.";
    return;
  }

  const hex = (bytes) => Array.from(bytes, (b) => b.toString(16).padStart(2, "0")).join("");
  const unhex = (text) => Uint8Array.from(text.match(/../g) || [], (pair) => parseInt(pair, 16));
  const unbase64 = (text) => Uint8Array.from(atob(text), (char) => char.charCodeAt(0));
  const join = (...parts) => {
    const all = new Uint8Array(parts.reduce((n, part) => n + part.length, 0));
    let at = 0;
    for (const part of parts) { all.set(part, at); at += part.length; }
    return all;
  };
  const sha256 = async (bytes) => new Uint8Array(await crypto.subtle.digest("SHA-256", bytes));
  const node = (left, right) => sha256(join(Uint8Array.of(1), left, right));
  const same = (a, b) => hex(a) === hex(b);

  // RFC 9162, 2.1.3.2. Numbers stay below 2^53, so they are divided and not shifted.
  const rootFrom = async (leaf, index, size, path) => {
    let fn = index, sn = size - 1, r = leaf;
    for (const p of path) {
      if (sn === 0) return null;
      if (fn % 2 === 1 || fn === sn) {
        r = await node(p, r);
        while (fn % 2 === 0 && fn !== 0) { fn /= 2; sn = Math.floor(sn / 2); }
      } else {
        r = await node(r, p);
      }
      fn = Math.floor(fn / 2);
      sn = Math.floor(sn / 2);
    }
    return sn === 0 ? r : null;
  };

  // RFC 9162, 2.1.4.2.
  const grew = async (first, second, firstRoot, secondRoot, given) => {
    if (first === second) return given.length === 0 && same(firstRoot, secondRoot);
    if (first < 1 || first > second || given.length === 0) return false;
    const path = Number.isInteger(Math.log2(first)) ? [firstRoot, ...given] : given;
    let fn = first - 1, sn = second - 1;
    while (fn % 2 === 1) { fn = Math.floor(fn / 2); sn = Math.floor(sn / 2); }
    let fr = path[0], sr = path[0];
    for (const c of path.slice(1)) {
      if (sn === 0) return false;
      if (fn % 2 === 1 || fn === sn) {
        fr = await node(c, fr);
        sr = await node(c, sr);
        while (fn % 2 === 0 && fn !== 0) { fn /= 2; sn = Math.floor(sn / 2); }
      } else {
        sr = await node(sr, c);
      }
      fn = Math.floor(fn / 2);
      sn = Math.floor(sn / 2);
    }
    return sn === 0 && same(fr, firstRoot) && same(sr, secondRoot);
  };

  const get = async (url) => {
    const answer = await fetch(url, { credentials: "same-origin" });
    if (!answer.ok) throw new Error(`the gateway answered ${answer.status}`);
    return answer;
  };

  try {
    const id = encodeURIComponent(box.dataset.id), index = Number(box.dataset.index);
    const about = await (await get("/log-key")).json();
    const keptName = `aegis-log:${about.log}`;
    const kept = JSON.parse(localStorage.getItem(keptName) || "null");
    const first = kept && kept.size ? `?first=${kept.size}` : "";
    const [leafBytes, proof] = await Promise.all([
      get(`/calls/${id}/leaf`).then((answer) => answer.arrayBuffer()),
      get(`/calls/${id}/proof${first}`).then((answer) => answer.json()),
    ]);
    const [origin, sizeText, rootText] = proof.note.split("\n"), size = Number(sizeText), root = unbase64(rootText);
    let good = true;

    const leaf = await sha256(join(Uint8Array.of(0), new Uint8Array(leafBytes)));
    good = step(hex(leaf) === box.dataset.leaf, "the receipt has the hash of its leaf") && good;
    const reached = await rootFrom(leaf, index, size, proof.inclusion.path.map(unhex));
    good = step(reached !== null && same(reached, root), `leaf ${index} is in the tree of ${size}`) && good;

    const key = kept ? kept.key : about.public;
    good = step(key === about.public && origin === about.log, kept ? "the log has the key that this browser knows" : "the log's key, seen for the first time") && good;
    const [text, block] = proof.note.split("\n\n");
    const line = block.split("\n").find((one) => one.startsWith(`— ${origin} `)) || "";
    let signed = null;
    try {
      const imported = await crypto.subtle.importKey("raw", unhex(key), { name: "Ed25519" }, false, ["verify"]);
      signed = await crypto.subtle.verify("Ed25519", imported, unbase64(line.split(" ")[2] || "").slice(4), new TextEncoder().encode(`${text}\n`));
    } catch (error) {
      if (error.name !== "NotSupportedError") throw error;
    }
    if (signed !== null) good = step(signed, "the checkpoint is signed by that key") && good;

    if (kept && kept.size) {
      const given = proof.consistency;
      const consistent = given !== null && await grew(kept.size, size, unhex(kept.root), root, given.path.map(unhex));
      good = step(consistent, `the log grew from the ${kept.size} receipts that this browser saw before`) && good;
    }
    if (good) localStorage.setItem(keptName, JSON.stringify({ key, size, root: hex(root) }));
    verdict(good ? "ok" : "bad", good ? "in the log" : "does not hold");
  } catch (error) {
    step(false, `the proof could not be computed: ${error.message}`);
    verdict("bad", "not proved");
  }
});
