// What every page does: times, countdowns, the theme, the menu. Pages work without it.
"use strict";
(() => {
  const root = document.documentElement;
  root.classList.remove("no-script");

  const pad = (n, width = 2) => String(n).padStart(width, "0");
  const day = (d) => d.toISOString().slice(0, 10);
  const clock = (d) => d.toISOString().slice(11, 19);

  // Times are UTC, as the log, its filters and its days are; the page says so, and the local time shows on hover.
  const localise = (node) => {
    const at = new Date(node.dateTime);
    if (Number.isNaN(at.getTime())) return;
    node.title = `${at.toISOString().replace("T", " ").replace("Z", " UTC")}, here ${at.toLocaleString()}`;
    if (node.dataset.as === "ago") {
      const s = Math.max(0, Math.round((Date.now() - at.getTime()) / 1000));
      node.textContent = s < 60 ? `${s} s ago` : s < 3600 ? `${Math.floor(s / 60)} min ago` : s < 86400 ? `${Math.floor(s / 3600)} h ago` : day(at);
    } else {
      node.textContent = day(at) === day(new Date()) ? clock(at) : `${day(at)} ${clock(at)}`;
    }
  };
  const localiseAll = (within = document) => within.querySelectorAll("time[datetime]").forEach(localise);

  const countDown = () => {
    document.querySelectorAll("[data-until]").forEach((node) => {
      const left = Math.round((Date.parse(node.dataset.until) - Date.now()) / 1000);
      node.textContent = left <= 0 ? "time is over" : left >= 3600 ? `${Math.floor(left / 3600)} h ${pad(Math.floor((left % 3600) / 60))} min` : `${Math.floor(left / 60)}:${pad(left % 60)}`;
      node.classList.toggle("soon", left < 60);
      if (left <= 0) document.querySelectorAll("[data-needs-time]").forEach((b) => { b.disabled = true; });
    });
  };

  // Pages come from this gateway alone; the policy is the one door through which HTML enters a document.
  const policy = window.trustedTypes ? window.trustedTypes.createPolicy("aegis", { createHTML: (text) => text }) : { createHTML: (text) => text };
  const gone = (yes) => { const note = document.getElementById("gone"); if (note) note.hidden = !yes; };
  const renew = (page, selector) => {
    const fresh = page.querySelector(selector), old = document.querySelector(selector);
    if (fresh && old && !old.contains(document.activeElement)) old.replaceWith(document.adoptNode(fresh));
  };
  const refresh = async (selector) => {
    const from = document.querySelector(selector)?.dataset.from || location.href;
    try {
      const answer = await fetch(from, { headers: { accept: "text/html" }, credentials: "same-origin" });
      if (answer.status === 401 || answer.redirected) { if (from === location.href) location.reload(); else location.assign(from); return; }
      gone(!answer.ok);
      if (!answer.ok) return;
      const page = new DOMParser().parseFromString(policy.createHTML(await answer.text()), "text/html");
      renew(page, selector);
      renew(page, ".nav"); // what waits is counted there
      localiseAll();
      countDown();
    } catch {
      gone(true);
    }
  };

  const theme = () => {
    const kept = localStorage.getItem("aegis-theme");
    if (kept === "light" || kept === "dark") root.dataset.theme = kept; else delete root.dataset.theme;
  };
  theme();

  window.aegis = { localise, localiseAll, refresh, clock };

  document.addEventListener("DOMContentLoaded", () => {
    localiseAll();
    countDown();
    setInterval(countDown, 1000);
    setInterval(() => document.querySelectorAll("time[data-as=ago]").forEach(localise), 15000);
    document.querySelectorAll("[data-theme-switch]").forEach((button) => button.addEventListener("click", () => {
      const dark = (root.dataset.theme || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";
      localStorage.setItem("aegis-theme", dark ? "light" : "dark");
      theme();
    }));
    document.querySelectorAll("[data-menu]").forEach((button) => button.addEventListener("click", () => {
      const open = document.querySelector(".rail").classList.toggle("open");
      button.setAttribute("aria-expanded", String(open));
    }));
    document.querySelectorAll("[data-refresh]").forEach((node) => {
      const selector = `#${node.id}`, every = Number(node.dataset.refresh) * 1000;
      const again = () => {
        if (!document.querySelector(selector)?.dataset.refresh) { clearInterval(timer); return; } // it has come to its end
        if (!document.hidden) refresh(selector);
      };
      const timer = setInterval(again, every);
    });
    document.querySelectorAll("[data-copy]").forEach((button) => button.addEventListener("click", async () => {
      await navigator.clipboard.writeText(button.dataset.copy);
      button.textContent = "copied";
    }));
    // An address that is sent on names only what was asked for.
    document.querySelectorAll("form[method=get]").forEach((form) => form.addEventListener("formdata", (event) => {
      [...event.formData].forEach(([name, value]) => { if (!value) event.formData.delete(name); });
    }));
    document.querySelectorAll("form[data-once]").forEach((form) => form.addEventListener("submit", () => {
      setTimeout(() => form.querySelectorAll("button").forEach((b) => { b.disabled = true; }), 0);
    }));
  });
})();
