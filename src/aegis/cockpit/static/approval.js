// A denial needs a reason: asked for before the form goes out.
"use strict";
document.addEventListener("DOMContentLoaded", () => {
  const reason = document.getElementById("reason");
  document.querySelectorAll("[data-needs-reason]").forEach((button) => button.addEventListener("click", (event) => {
    if (reason.value.trim()) { reason.setCustomValidity(""); return; }
    event.preventDefault();
    reason.setCustomValidity("Say why, so that the agent's people know.");
    reason.reportValidity();
  }));
  if (reason) reason.addEventListener("input", () => reason.setCustomValidity(""));
});
