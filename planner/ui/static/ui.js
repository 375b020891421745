"use strict";
// A form that is answered while it is filled in, sliders of a plan, uploads, prices, what is saved.
(() => {
  const form = document.getElementById("ask");
  const shown = document.getElementById("command");
  const answered = document.getElementById("answered");
  const live = document.getElementById("live");
  const WAIT_MS = 350;
  const SAVED = "planner.saved";

  const all = () => [...form.querySelectorAll("[data-option]")];
  const filled = () => all().filter((one) => one.value.trim());
  const field = (name) => form && form.elements.namedItem(name);
  const element = (name, texts = {}) => Object.assign(document.createElement(name), texts);

  // The command that asks the same.

  const quoted = (word) => (/^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replace(/'/g, `'"'"'`)}'`);

  function words(one) {
    const { option } = one.dataset;
    const value = one.value.trim();
    if (one.name === "things") return [];
    if (one.name === "target") return [];
    if (one.dataset.file) return [option, quoted(value.slice(value.lastIndexOf(":") + 1))];
    if (one.name === "prices") return [option, "prices.csv"];
    if (one.dataset.flag) return [value === "true" ? option : `--no-${option.slice(2)}`];
    if (["settings", "against"].includes(one.name)) return value.split(/\s+/).flatMap((w) => [option, quoted(w)]);
    return [option, quoted(value)];
  }

  function tell() {
    const { command, workload, output } = shown.dataset;
    const placed = filled()
      .filter((one) => ["things", "target"].includes(one.name))
      .flatMap((one) => one.value.split(",").map((w) => w.trim()).filter(Boolean).map(quoted));
    const start = ["planner", command, ...placed, ...(workload === "train" ? [] : ["--workload", workload])];
    shown.textContent = [...start, ...filled().flatMap(words), output].join(" ").trim();
  }

  function query() {
    const pairs = filled().map((one) => [one.name, one.value.trim()]);
    const { workload } = shown.dataset;
    return new URLSearchParams(workload === "train" ? pairs : [["workload", workload], ...pairs]);
  }

  // Answers: the last question counts, an earlier one is cancelled.

  let waiting = 0;
  let asking = null;
  let told = null;
  let job = "";

  function stop() {
    clearTimeout(waiting);
    if (asking) asking.abort();
    if (told) told.close();
    if (job) fetch(`/jobs/${job}`, { method: "DELETE" });
    [asking, told, job] = [null, null, ""];
  }

  function soon(keepsSliders) {
    if (!live || !live.checked) return;
    stop();
    waiting = setTimeout(() => ask(keepsSliders), WAIT_MS);
  }

  async function ask(keepsSliders = false) {
    stop();
    const asked = query();
    if (!["model", "things", "file", "services"].some((name) => asked.get(name))) return;
    const { command } = shown.dataset;
    history.replaceState(null, "", `/${command}?${asked}`);
    document.getElementById("job")?.remove();
    asking = new AbortController();
    answered.setAttribute("aria-busy", "true");
    try {
      const response = await fetch(`/answers/${command}?${asked}`, { signal: asking.signal });
      const table = await response.json();
      if (table.job) await work(table.job, keepsSliders);
      else show(table, keepsSliders);
    } catch (error) {
      if (error.name !== "AbortError") say("The server does not answer: try again.");
    }
  }

  function say(message) {
    answered.removeAttribute("aria-busy");
    let line = answered.querySelector(".now");
    if (!line) {
      line = element("p", { className: "now" });
      line.setAttribute("role", "status");
      answered.prepend(line);
    }
    line.textContent = message;
    return line;
  }

  function work(name, keepsSliders) {
    job = name;
    told = new EventSource(`/jobs/${name}/events`);
    told.addEventListener("progress", (event) => {
      const line = say(state(JSON.parse(event.data)));
      answered.setAttribute("aria-busy", "true");
      const button = element("button", { type: "button", textContent: "Cancel" });
      button.addEventListener("click", () => { stop(); say("Cancelled."); });
      line.append(" ", button);
    });
    told.addEventListener("end", () => { told.close(); job = ""; ask(keepsSliders); });
  }

  function state({ running, before, done, total }) {
    if (!running) return before ? `${before} before it.` : "It is the next one.";
    if (total) return `${done.toLocaleString("en")} of ${total.toLocaleString("en")}`;
    return "It is being worked on.";
  }

  function show(table, keepsSliders) {
    const made = document.createElement("template");
    made.innerHTML = table.html;  // made by our templates, which escape what people wrote
    answered.removeAttribute("aria-busy");
    const fault = made.content.querySelector(".fault");
    if (fault && answered.querySelector(".answer")) {
      answered.querySelectorAll(".fault, .now").forEach((one) => one.remove());
      answered.prepend(fault);
      answered.classList.add("old");
      return;
    }
    answered.classList.remove("old");
    const before = answered.querySelector(".sliders");
    const after = made.content.querySelector(".sliders");
    const focused = document.activeElement;
    if (keepsSliders && before && after) after.replaceWith(before);
    const open = [...answered.querySelectorAll("details[open][id]")].map((one) => one.id);
    answered.replaceChildren(made.content);
    answered.querySelectorAll("details").forEach((one) => { one.open ||= open.includes(one.id); });
    if (before && before.contains(focused)) focused.focus();
    const sentence = answered.querySelector(".headline, .sentence");
    document.getElementById("told").textContent = sentence ? sentence.textContent : "";
    if (table.title) document.title = `${table.title} - planner`;
    for (const one of all()) {
      const took = one.value.trim() ? "" : table.assumed[one.name] || "";
      const box = one.closest(".field");
      box.classList.toggle("took", Boolean(took));
      if (one.dataset.example !== undefined) one.placeholder = took.split(" (")[0] || one.dataset.example;
      const hint = box.querySelector(".hint b");
      if (hint) hint.remove();
      if (took) box.querySelector(".hint").append(element("b", { textContent: ` Assumed: ${took}` }));
    }
    for (const group of form.querySelectorAll("details")) {
      const number = group.querySelectorAll(".took").length;
      let note = group.querySelector("summary .assumed");
      if (!note) group.querySelector("summary").append(" ", note = element("small", { className: "assumed" }));
      note.textContent = number ? `${number} assumed` : "";
    }
    document.dispatchEvent(new Event("content"));  // its tables and charts
    begin();
  }

  // A page that was asked for as a whole, while it is worked on.
  function follow(box) {
    const line = box.querySelector(".state");
    const bar = box.querySelector("progress");
    job = box.dataset.job;
    const events = told = new EventSource(`/jobs/${job}/events`);
    events.addEventListener("progress", (event) => {
      const now = JSON.parse(event.data);
      line.textContent = state(now);
      if (now.running && now.total) bar.value = now.done / now.total;
    });
    events.addEventListener("end", () => {
      events.close();
      job = "";
      location.reload();
    });
    events.addEventListener("error", () => {
      if (events.readyState === EventSource.CLOSED) line.textContent = "The server does not answer: reload the page.";
    });
    box.querySelector(".cancel").addEventListener("click", () => {
      stop();
      box.querySelector("h1").textContent = "Cancelled";
      line.textContent = "Reload the page to ask again.";
      bar.remove();
      box.querySelector(".cancel").remove();
    });
  }

  function go(name) {
    const one = document.getElementById(`f-${name}`);
    if (!one) return;
    const group = one.closest("details");
    if (group) group.open = true;
    one.focus();
    one.scrollIntoView({ block: "center" });
  }

  // A slider moves the whole plan: everything else stays.
  function move(section) {
    const plan = new URLSearchParams(section.dataset.plan);
    const pairs = (plan.get("settings") || "").split(/\s+/).filter(Boolean).map((one) => one.split("="));
    const settings = new Map(pairs);
    for (const one of section.querySelectorAll("input[type=range]")) {
      const value = JSON.parse(one.dataset.values)[one.value];
      one.previousElementSibling.textContent = value;
      one.setAttribute("aria-valuetext", value);
      if (one.value === one.defaultValue) continue;
      if (one.dataset.setting) settings.set(one.dataset.name, value);
      else plan.set(one.dataset.name, value);
    }
    plan.set("settings", [...settings].map((pair) => pair.join("=")).join(" "));
    for (const one of all()) if (one.name !== "against") one.value = plan.get(one.name) || "";
    form.querySelectorAll("[data-file]").forEach(named);
    tell();
    stop();
    waiting = setTimeout(() => ask(true), live && live.checked ? WAIT_MS : 0);
  }

  // Files go to the server as texts, and a question names them.
  async function uploaded(input, output) {
    const files = [];
    for (const file of input.files) files.push({ name: file.name, text: await file.text() });
    if (!files.length) return "";
    const ending = /[.]\w+$/.exec(input.dataset.first || "");  // what others are read for stands first
    if (ending) files.sort((one, other) => other.name.endsWith(ending) - one.name.endsWith(ending));
    output.textContent = "Uploading";
    const body = JSON.stringify({ files });
    const response = await fetch("/uploads", { method: "POST", body, headers: { "content-type": "application/json" } });
    const table = await response.json().catch(() => ({ message: "The server took it not." }));
    output.textContent = response.ok ? files.map((one) => one.name).join(", ") : table.message;
    return response.ok ? table.file : "";
  }

  function named(hidden) {
    const box = hidden.closest(".upload");
    box.querySelector("output").textContent = hidden.value.slice(hidden.value.lastIndexOf(":") + 1);
    box.querySelector(".remove").hidden = !hidden.value;
  }

  function takesFiles(box) {
    const [hidden, input] = [box.querySelector("[data-file]"), box.querySelector("[type=file]")];
    input.addEventListener("change", async () => {
      const file = await uploaded(input, box.querySelector("output"));
      if (!file) return;
      hidden.value = file;
      location.assign(`/${shown.dataset.command}?${query()}`);
    });
    box.querySelector(".remove").addEventListener("click", () => {
      hidden.value = "";
      input.value = "";
      named(hidden);
      tell();
      soon();
    });
  }

  // Own prices as a table of GPU, contract and USD per hour; the question has them as a text.
  const offers = (text) => text.split(",").map((one) => /^\s*([\w.-]+)(?:\s+([\w-]+))?\s*=\s*(\S+)\s*$/.exec(one))
    .filter(Boolean).map(([, gpu, contract, usd]) => ({ gpu, contract: contract || "on-demand", usd }));

  function prices(box, input) {
    box.hidden = false;
    const cell = (name, value, list, row) => {
      const one = element("input", { value, autocomplete: "off", placeholder: name });
      one.setAttribute("aria-label", name);
      if (list) one.setAttribute("list", list);
      one.addEventListener("input", () => {
        const rows = [...box.querySelectorAll(".offer")].map((line) => [...line.querySelectorAll("input")].map((c) => c.value.trim()));
        input.value = rows.filter(([gpu, , usd]) => gpu && usd).map(([gpu, contract, usd]) => `${gpu} ${contract || "on-demand"}=${usd}`).join(", ");
        if (row === box.querySelector(".offer:last-of-type") && one.value) add();
      });
      return one;
    };
    const add = ({ gpu = "", contract = "", usd = "" } = {}) => {
      const row = element("div", { className: "offer" });
      row.append(cell("GPU", gpu, "list-gpu", row), cell("contract", contract, "list-contract", row), cell("USD/h", usd, "", row));
      box.append(row);
    };
    [...offers(input.value), {}].forEach(add);
  }

  function pricesFile(link) {
    const rows = offers(field("prices").value).map(({ gpu, contract, usd }) => `${gpu},${contract},${usd}`);
    const text = ["gpu,contract,price_per_gpu_hour", ...rows, ""].join("\n");
    link.href = `data:text/csv;charset=utf-8,${encodeURIComponent(text)}`;
    link.download = "prices.csv";
  }

  // What is saved stays in this browser.
  function saved() {
    try {
      return JSON.parse(localStorage.getItem(SAVED)) || [];
    } catch {
      return [];
    }
  }

  function save(box) {
    box.addEventListener("submit", (event) => {
      event.preventDefault();
      const name = box.elements.namedItem("name").value.trim();
      const sentence = answered.querySelector(".headline, .sentence");
      const one = { name, url: location.pathname + location.search, at: new Date().toISOString(), answer: sentence ? sentence.textContent : "" };
      try {
        localStorage.setItem(SAVED, JSON.stringify([one, ...saved().filter((other) => other.name !== name)]));
        box.querySelector("output").textContent = "Saved: the first page has it.";
      } catch {
        box.querySelector("output").textContent = "This browser keeps nothing.";
      }
    });
  }

  function listed(section) {
    const rows = saved().map((one) => {
      const row = element("tr");
      const link = element("a", { href: one.url, textContent: one.name });
      const gone = element("button", { type: "button", textContent: "Delete" });
      gone.setAttribute("aria-label", `Delete ${one.name}`);
      gone.addEventListener("click", () => {
        localStorage.setItem(SAVED, JSON.stringify(saved().filter((other) => other.name !== one.name)));
        listed(section);
      });
      for (const inside of [link, one.answer, one.at.slice(0, 10), gone]) {
        const cell = element("td");
        cell.append(inside);
        row.append(cell);
      }
      row.cells[1].className = "w";
      return row;
    });
    section.hidden = !rows.length;
    section.querySelector("tbody").replaceChildren(...rows);
  }

  // Of every answer anew.
  function begin() {
    const box = document.getElementById("save");
    if (box) save(box);
    for (const one of answered.querySelectorAll(".sliders")) {
      if (one.dataset.begun) continue;
      one.dataset.begun = "1";
      one.addEventListener("input", () => move(one));
    }
    const link = answered.querySelector("[data-prices]");
    if (link) pricesFile(link);
  }

  document.addEventListener("click", (event) => {
    const one = event.target.closest("[data-to]");
    if (!one) return;
    event.preventDefault();
    go(one.dataset.to);
  });

  if (form) {
    form.addEventListener("input", (event) => {
      if (event.target === live || event.target.type === "file") return;
      tell();
      soon();
    });
    form.addEventListener("submit", (event) => {
      if (live && live.checked) {
        event.preventDefault();
        ask();
        return;
      }
      const empty = all().filter((one) => !one.value.trim());
      empty.forEach((one) => { one.disabled = true; });
      // A page that is gone back to has its fields again.
      setTimeout(() => empty.forEach((one) => { one.disabled = false; }), 0);
    });
    for (const box of form.querySelectorAll(".upload")) takesFiles(box);
    for (const box of form.querySelectorAll(".prices")) prices(box, field("prices"));
    for (const link of document.querySelectorAll("a[data-workload]")) {
      link.addEventListener("click", () => {
        const names = ["model", "gpu", "num_gpus", "region", "contract", "prices"];
        const kept = filled().filter((one) => names.includes(one.name));
        const pairs = new URLSearchParams(kept.map((one) => [one.name, one.value.trim()]));
        if (link.dataset.workload !== "train") pairs.set("workload", link.dataset.workload);
        link.href = `/${shown.dataset.command}?${pairs}`;
      });
    }
    begin();
  }
  for (const box of document.querySelectorAll("[data-upload-to]")) {
    const input = box.querySelector("[type=file]");
    input.addEventListener("change", async () => {
      const file = await uploaded(input, box.querySelector("output"));
      if (file) location.assign(`${box.dataset.uploadTo}?${new URLSearchParams({ file })}`);
    });
  }
  const list = document.getElementById("saved");
  if (list) listed(list);
  const box = document.getElementById("job");
  if (box) follow(box);
})();
