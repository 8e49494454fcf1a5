// Line numbers beside the text, and links that lead to a line.
"use strict";
document.addEventListener("DOMContentLoaded", () => {
  const text = document.getElementById("text"), gutter = document.getElementById("gutter");
  if (!text || !gutter) return;
  const number = () => {
    const count = text.value.split("\n").length;
    if (gutter.childElementCount === count) return;
    const rows = document.createDocumentFragment();
    for (let n = 1; n <= count; n += 1) {
      const row = document.createElement("span");
      row.textContent = String(n);
      rows.append(row, "\n");
    }
    gutter.replaceChildren(rows);
  };
  text.addEventListener("input", number);
  text.addEventListener("scroll", () => { gutter.scrollTop = text.scrollTop; });
  document.querySelectorAll("[data-line]").forEach((link) => link.addEventListener("click", (event) => {
    event.preventDefault();
    const line = Number(link.dataset.line), lines = text.value.split("\n");
    const start = lines.slice(0, line - 1).reduce((sum, one) => sum + one.length + 1, 0);
    text.focus();
    text.setSelectionRange(start, start + (lines[line - 1] || "").length);
    text.scrollTop = (line - 5) * 20;
  }));
  document.addEventListener("keydown", (event) => {
    if ((event.ctrlKey || event.metaKey) && event.key === "Enter") document.getElementById("editor-form").requestSubmit();
  });
});
