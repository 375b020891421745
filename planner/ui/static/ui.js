"use strict";
// The command of a form as it is filled in, links without empty fields, and how far a job is.
(() => {
  const form = document.getElementById("ask");
  const shown = document.getElementById("command");
  const fields = () => [...form.querySelectorAll("[data-option]")].filter((one) => one.value.trim());

  const quoted = (word) => (/^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replace(/'/g, `'"'"'`)}'`);

  function words(field) {
    const { option } = field.dataset;
    const value = field.value.trim();
    if (field.dataset.flag) return [value === "true" ? option : `--no-${option.slice(2)}`];
    if (field.name === "settings") return value.split(/\s+/).flatMap((one) => [option, quoted(one)]);
    return [option, quoted(value)];
  }

  function tell() {
    const { command, workload } = shown.dataset;
    const start = ["planner", command, ...(workload === "train" ? [] : ["--workload", workload])];
    shown.textContent = [...start, ...fields().flatMap(words)].join(" ");
  }

  function follow(box) {
    const state = box.querySelector(".state");
    const bar = box.querySelector("progress");
    const events = new EventSource(`/jobs/${box.dataset.job}/events`);
    events.addEventListener("progress", (event) => {
      const { running, before, done, total } = JSON.parse(event.data);
      if (!running) {
        state.textContent = before ? `${before} before it.` : "It is the next one.";
      } else if (total) {
        state.textContent = `${done.toLocaleString("en")} of ${total.toLocaleString("en")}`;
        bar.value = done / total;
      } else {
        state.textContent = "It is being worked on.";
      }
    });
    events.addEventListener("end", () => {
      events.close();
      location.reload();
    });
    events.addEventListener("error", () => {
      if (events.readyState === EventSource.CLOSED) state.textContent = "The server does not answer: reload the page.";
    });
    box.querySelector(".cancel").addEventListener("click", async () => {
      events.close();
      await fetch(`/jobs/${box.dataset.job}`, { method: "DELETE" });
      box.querySelector("h1").textContent = "Cancelled";
      state.textContent = "Reload the page to ask again.";
      bar.remove();
      box.querySelector(".cancel").remove();
    });
  }

  if (form) {
    form.addEventListener("input", tell);
    form.addEventListener("submit", () => {
      const all = [...form.querySelectorAll("[data-option]")];
      all.filter((one) => !one.value.trim()).forEach((one) => { one.disabled = true; });
      // A page that is gone back to has its fields again.
      setTimeout(() => all.forEach((one) => { one.disabled = false; }), 0);
    });
    for (const link of document.querySelectorAll("[data-workload]")) {
      if (link.tagName !== "A") continue;
      link.addEventListener("click", () => {
        const kept = fields().filter((one) => ["model", "gpu", "num_gpus", "region", "contract"].includes(one.name));
        const query = new URLSearchParams(kept.map((one) => [one.name, one.value.trim()]));
        if (link.dataset.workload !== "train") query.set("workload", link.dataset.workload);
        link.href = `/${shown.dataset.command}?${query}`;
      });
    }
  }
  const job = document.getElementById("job");
  if (job) follow(job);
})();
