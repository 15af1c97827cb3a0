// What only scripts can do; the style sheet hides its buttons where none run.
document.documentElement.classList.add("scripted");

document.addEventListener("click", async (event) => {
  const button = event.target.closest("[data-copy]");
  if (!button) return;
  try {
    const source = document.getElementById(button.dataset.copy);
    await navigator.clipboard.writeText(source.value ?? source.textContent);
    button.textContent = "Copied";
  } catch {
    button.textContent = "Select the text to copy it";
  }
});

// A file that is dropped or chosen is sent at once, so that the page shows what is in it.
for (const place of document.querySelectorAll("[data-drop]")) {
  const input = place.querySelector("input[type=file]");
  const mark = (on) => (event) => {
    event.preventDefault();
    place.classList.toggle("over", on);
  };
  place.addEventListener("dragover", mark(true));
  place.addEventListener("dragleave", mark(false));
  place.addEventListener("drop", (event) => {
    mark(false)(event);
    if (!event.dataTransfer.files.length) return;
    input.files = event.dataTransfer.files;
    input.dispatchEvent(new Event("change", { bubbles: true }));
  });
  input.addEventListener("change", (event) => {
    event.stopPropagation();
    if (input.files.length) input.form.requestSubmit(place.querySelector("[data-upload]"));
  });
}

// A mistake of a field may no longer apply after an edit: the next preview reports it again.
document.addEventListener("change", (event) => {
  const name = event.target.name?.split(".")[0];
  const mistakes = name ? document.querySelectorAll(`#job [data-of="${CSS.escape(name)}"]`) : [];
  if (!mistakes.length) return;
  for (const each of mistakes) each.remove();
  for (const each of document.querySelectorAll(`#job [aria-describedby="wrong-${CSS.escape(name)}"]`)) {
    each.removeAttribute("aria-describedby");
    each.removeAttribute("aria-invalid");
  }
});

// A hidden page requests nothing, and reloads its content when it is shown again.
document.addEventListener("htmx:before:request", (event) => {
  const request = event.detail.ctx.request;
  if (document.hidden && (!request.method || request.method === "GET")) event.preventDefault();
});
document.addEventListener("visibilitychange", () => {
  const changes = document.getElementById("changes");
  if (changes && !document.hidden) changes.dispatchEvent(new CustomEvent("lab-changed"));
});
