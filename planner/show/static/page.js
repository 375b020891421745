"use strict";
// Tables that are sorted and filtered, charts of what they show, and tips. No request to a server.
(() => {
  const tables = new Map();

  const number = (cell) => (cell.dataset.v === undefined ? NaN : Number(cell.dataset.v));
  const bare = (cell) => (cell.firstChild ? cell.firstChild.textContent : "").trim();

  class Sheet {
    constructor(box) {
      this.box = box;
      this.body = box.querySelector("tbody");
      this.rows = [...this.body.rows];
      this.heads = [...box.querySelectorAll("th")];
      this.names = this.heads.map((head) => head.dataset.name);
      this.titles = this.heads.map((head) => head.textContent.trim());
      this.status = box.querySelector(".number");
      this.listeners = [];
      this.heads.forEach((head, at) => {
        head.querySelector("button").addEventListener("click", () => this.sort(at));
      });
      this.input = box.querySelector("input[type=search]");
      if (this.input) {
        this.input.addEventListener("input", () => this.filter(this.input.value));
        this.input.addEventListener("keydown", (event) => {
          if (event.key === "Escape" && this.input.value) {
            event.preventDefault();
            this.input.value = "";
            this.filter("");
          }
        });
      }
    }

    sort(at) {
      const before = this.heads[at].getAttribute("aria-sort");
      const sign = before === "ascending" ? -1 : 1;
      this.heads.forEach((head) => head.setAttribute("aria-sort", "none"));
      this.heads[at].setAttribute("aria-sort", sign > 0 ? "ascending" : "descending");
      const numeric = this.rows.some((row) => !Number.isNaN(number(row.cells[at])));
      const key = (row) => (numeric ? number(row.cells[at]) : row.cells[at].textContent.trim());
      const order = (one, two) => {
        if (!numeric) return sign * key(one).localeCompare(key(two), "en", { numeric: true });
        const [a, b] = [key(one), key(two)];
        if (Number.isNaN(a) || Number.isNaN(b)) return Number.isNaN(a) - Number.isNaN(b);
        return sign * (a - b);
      };
      const last = this.rows.filter((row) => row.classList.contains("total"));
      const others = this.rows.filter((row) => !row.classList.contains("total"));
      this.body.append(...others.sort(order), ...last);
    }

    // Words that a row must have, and conditions such as "cost < 2.5"; columns by name or head.
    filter(words) {
      const conditions = [];
      const rest = words.replace(
        /([^\s<>=]+(?: [^\s<>=]+)*?)\s*(<=|>=|<|>|=)\s*([^\s<>=]+)/g,
        (whole, name, sign, value) => {
          const found = this.condition(name, sign, value);
          if (found === null) return whole;
          conditions.push(found.holds);
          return found.before;
        },
      );
      const plain = rest.toLowerCase().split(/\s+/).filter(Boolean);
      const isWrong = /[<>=]/.test(rest);
      if (this.input) this.input.setAttribute("aria-invalid", String(isWrong));
      let shown = 0;
      for (const row of this.rows) {
        const said = row.textContent.toLowerCase();
        const fits = isWrong || (plain.every((w) => said.includes(w)) && conditions.every((c) => c(row)));
        row.hidden = !fits;
        shown += fits;
      }
      const all = this.rows.length;
      if (this.status) {
        this.status.textContent = isWrong
          ? "which column?" : shown === all ? `${all} rows` : `${shown} of ${all} rows`;
      }
      this.listeners.forEach((tell) => tell());
    }

    // The longest end of the words before a sign that names a column; what is before stays words.
    condition(name, sign, value) {
      const words = name.split(" ");
      for (let from = 0; from < words.length; from += 1) {
        const at = this.column(words.slice(from).join(" "));
        if (at < 0) continue;
        const bound = Number(value.replace(/,/g, ""));
        const compare = {
          "<": (v) => v < bound, "<=": (v) => v <= bound, ">": (v) => v > bound,
          ">=": (v) => v >= bound, "=": (v) => v === bound,
        }[sign];
        const asked = value.toLowerCase();
        const holds = (row) => {
          const cell = row.cells[at];
          if (Number.isNaN(bound)) return sign === "=" && bare(cell).toLowerCase() === asked;
          return compare(Number.isNaN(number(cell)) ? Number(bare(cell)) : number(cell));
        };
        if (Number.isNaN(bound) && sign !== "=") return null;
        return { holds, before: words.slice(0, from).join(" ") };
      }
      return null;
    }

    column(word) {
      const wanted = word.toLowerCase();
      const of = (titles) => titles.findIndex((title) => title.toLowerCase() === wanted);
      const exact = Math.max(of(this.names), of(this.titles));
      if (exact >= 0) return exact;
      return this.titles.findIndex((title) => title.toLowerCase().startsWith(wanted));
    }

    numeric() {
      const has = (at) => this.rows.some((row) => !Number.isNaN(number(row.cells[at])));
      const isNumber = (at) => this.heads[at].classList.contains("n") || this.names[at] === CLOCK;
      return this.heads.map((_, at) => at).filter((at) => isNumber(at) && has(at));
    }
  }

  // The column with the time of the day, in hours.
  const CLOCK = "time";
  const CLOCK_STEPS = [1, 2, 3, 6, 12];
  const clock = (hours) => `${String(Math.floor(hours)).padStart(2, "0")}:${String(Math.round(60 * (hours % 1))).padStart(2, "0")}`;

  function hours(low, high, most) {
    const step = CLOCK_STEPS.find((one) => (high - low) / one <= most) || 24;
    const found = [];
    for (let n = Math.ceil(low / step) * step; n <= high; n += step) found.push(n);
    return found;
  }

  // Round numbers from one end to the other; of a logarithmic axis 1, 2 and 5 of each decade.
  function ticks(low, high, most, isLog) {
    if (isLog) {
      const found = [];
      for (let n = Math.floor(Math.log10(low)); n <= Math.log10(high); n += 1) {
        for (const digit of [1, 2, 5]) found.push(digit * 10 ** n);
      }
      const inside = found.filter((one) => one >= low * 0.999 && one <= high * 1.001);
      return inside.length > most ? inside.filter((one) => /^1/.test(one.toExponential())) : inside;
    }
    const rough = (high - low) / most || 1;
    const unit = 10 ** Math.floor(Math.log10(rough));
    const step = unit * [1, 2, 5, 10].find((one) => one * unit >= rough);
    const found = [];
    for (let n = Math.ceil(low / step); n * step <= high + step * 1e-9; n += 1) found.push(n * step);
    return found;
  }

  const told = (value) => Number(value.toPrecision(6)).toLocaleString("en", { maximumSignificantDigits: 6 });

  function element(parent, name, attributes, words) {
    const made = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    if (words !== undefined) made.textContent = words;
    parent.append(made);
    return made;
  }

  const MOST_ENDS = 60;  // of more points the intervals hide each other
  const SERIES = 7;
  const SHAPES = ["M-5,0a5,5 0 1,0 10,0a5,5 0 1,0 -10,0Z", "M-4.4,-4.4H4.4V4.4H-4.4Z", "M0,-5.5L5.5,4H-5.5Z", "M0,-6L5,0L0,6L-5,0Z"];
  const DIAMOND = "M0,-6L6,0L0,6L-6,0Z";
  const STAR = "M0,-9L2.6,-3.2L8.6,-2.8L4,1.2L5.4,7.3L0,4L-5.4,7.3L-4,1.2L-8.6,-2.8L-2.6,-3.2Z";

  // An axis is logarithmic, unless the reader chooses, where its values span more than this.
  const DECADE = 10;

  class Scatter {
    constructor(figure, sheet, measured) {
      const place = (name) => sheet.names.indexOf(name);
      this.measured = measured;
      const { x, y, by, shape } = figure.dataset;
      this.at = { x: place(x), y: place(y), by: place(by), shape: place(shape) };
      this.sheet = sheet;
      this.drawn = figure.querySelector(".drawn");
      this.legend = figure.querySelector(".legend");
      this.hidden = new Set();
      this.log = document.createElement("input");
      this.log.type = "checkbox";
      this.choices(figure.querySelector(".axes"));
      this.draw();
      sheet.listeners.push(() => this.draw());
      if (measured) measured.listeners.push(() => this.draw());
      let width = this.drawn.clientWidth;
      new ResizeObserver(() => {
        if (this.drawn.clientWidth === width) return;
        width = this.drawn.clientWidth;
        this.draw();
      }).observe(this.drawn);
      this.drawn.addEventListener("click", (event) => {
        const point = event.target.closest("[data-row]");
        if (!point) return;
        const of = "measured" in point.dataset ? measured : sheet;
        const row = of.rows[Number(point.dataset.row)];
        of.rows.forEach((one) => one.classList.toggle("chosen", one === row));
        const folded = row.closest("details");
        if (folded) folded.open = true;
        row.scrollIntoView({ block: "nearest" });
      });
    }

    choices(axes) {
      for (const axis of ["x", "y"]) {
        const label = document.createElement("label");
        const choice = document.createElement("select");
        for (const n of this.sheet.numeric()) choice.add(new Option(this.sheet.titles[n], n, false, n === this.at[axis]));
        choice.addEventListener("change", () => { this.at[axis] = Number(choice.value); this.draw(); });
        label.append(axis === "x" ? "across " : "up ", choice);
        axes.append(label);
      }
      const label = document.createElement("label");
      this.log.addEventListener("change", () => { this.isLogChosen = true; this.draw(); });
      label.append(this.log, " logarithmic");
      axes.append(label);
    }

    // The ends of an interval; the value itself where it has none.
    ends(row, column) {
      const cell = row.cells[column];
      return cell.dataset.lo === undefined ? [number(cell), number(cell)] : [Number(cell.dataset.lo), Number(cell.dataset.hi)];
    }

    // From a value to a place on an axis that holds all rows.
    axis(rows, column, from, to, hasEnds, others) {
      if (this.sheet.names[column] === CLOCK) {
        return { place: (one) => from + (to - from) * one / 24, low: 0, high: 24, isLog: false };
      }
      const values = others.concat(rows.flatMap((row) => {
        const value = number(row.cells[column]);
        const ends = hasEnds || row.classList.contains("best") ? this.ends(row, column) : [];
        return [value, ...ends.map((end) => Math.min(end, 3 * Math.abs(value)))];
      }));
      const points = others.concat(rows.map((row) => number(row.cells[column])));
      const isWide = Math.max(...points) > DECADE * Math.min(...points);
      const isLog = (this.isLogChosen ? this.log.checked : isWide) && Math.min(...values) > 0;
      let [low, high] = [Math.min(...values), Math.max(...values)];
      if (!rows.length) [low, high] = [0, 1];
      if (isLog) [low, high] = [low / 1.08, high * 1.08];
      else {
        const room = (high - low || Math.abs(high) || 1) * 0.06;
        [low, high] = [low >= 0 && low < 0.35 * high ? 0 : low - room, high + room];
      }
      const scale = isLog ? Math.log : (one) => one;
      const whole = scale(high) - scale(low);
      const place = (one) => from + (to - from) * (scale(Math.min(Math.max(one, low), high)) - scale(low)) / whole;
      return { place, low, high, isLog };
    }

    draw() {
      const { sheet, at } = this;
      const named = (row) => (at.by < 0 ? "" : bare(row.cells[at.by]));
      const every = [...new Set(sheet.rows.map(named))];
      const shapes = at.shape < 0 ? [] : [...new Set(sheet.rows.map((row) => bare(row.cells[at.shape])))];
      const rows = sheet.rows.filter((row) => !row.hidden && !this.hidden.has(named(row))
        && !Number.isNaN(number(row.cells[at.x])) && !Number.isNaN(number(row.cells[at.y])));
      const width = Math.max(this.drawn.clientWidth, 240);
      const height = rows.length > 5 && width > 700 ? 440 : 340;
      const hasEnds = rows.length <= MOST_ENDS;
      const runs = this.runs();
      const x = this.axis(rows, at.x, 64, width - 14, hasEnds, runs.map((run) => run.x));
      const y = this.axis(rows, at.y, height - 46, 26, hasEnds, runs.map((run) => run.y));
      if (!this.isLogChosen) this.log.checked = x.isLog || y.isLog;
      const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
      svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
      svg.setAttribute("height", height);
      const isDay = sheet.names[at.x] === CLOCK;
      const across = isDay ? hours(x.low, x.high, width / 70) : ticks(x.low, x.high, width / 110, x.isLog);
      for (const one of across) {
        element(svg, "line", { x1: x.place(one), x2: x.place(one), y1: 26, y2: height - 46, class: "grid" });
        element(svg, "text", { x: x.place(one), y: height - 28, "text-anchor": "middle" }, isDay ? clock(one) : told(one));
      }
      for (const one of ticks(y.low, y.high, 6, y.isLog)) {
        element(svg, "line", { x1: 64, x2: width - 14, y1: y.place(one), y2: y.place(one), class: "grid" });
        element(svg, "text", { x: 56, y: y.place(one) + 4, "text-anchor": "end" }, told(one));
      }
      element(svg, "text", { x: width - 14, y: height - 8, "text-anchor": "end", class: "axis" }, `${sheet.titles[at.x]} \u2192`);
      element(svg, "text", { x: 4, y: 14, class: "axis" }, `\u2191 ${sheet.titles[at.y]}`);
      if (isDay) this.steps(svg, rows, every, named, x, y);
      for (const run of runs) {
        const group = element(svg, "g", { class: "point measured", "data-measured": "",
          "data-row": this.measured.rows.indexOf(run.row), "data-tip": run.row.dataset.tip || "" });
        element(group, "path", { d: DIAMOND, transform: `translate(${x.place(run.x)},${y.place(run.y)})` });
      }
      const isBest = (row) => row.classList.contains("best");
      for (const row of [...rows].sort((one, two) => isBest(one) - isBest(two))) {
        const color = isBest(row) ? "chosen" : `s${every.indexOf(named(row)) % SERIES}`;
        const group = element(svg, "g", { class: `point ${color}${row.classList.contains("tie") ? " tied" : ""}`,
          "data-row": sheet.rows.indexOf(row), "data-tip": this.words(row) });
        const [left, up] = [x.place(number(row.cells[at.x])), y.place(number(row.cells[at.y]))];
        if (hasEnds || isBest(row)) {
          const [wide, tall] = [this.ends(row, at.x).map(x.place), this.ends(row, at.y).map(y.place)];
          element(group, "line", { x1: wide[0], x2: wide[1], y1: up, y2: up });
          element(group, "line", { x1: left, x2: left, y1: tall[0], y2: tall[1] });
        }
        const shape = at.shape < 0 ? 0 : shapes.indexOf(bare(row.cells[at.shape])) % SHAPES.length;
        element(group, "path", { d: isBest(row) ? STAR : SHAPES[shape], transform: `translate(${left},${up})` });
      }
      this.drawn.replaceChildren(svg);
      this.tell(every, shapes, runs.length, rows.some(isBest));
    }

    // Over a day each value lasts until the next time.
    steps(svg, rows, every, named, x, y) {
      for (const name of every) {
        const points = rows.filter((row) => named(row) === name)
          .map((row) => [x.place(number(row.cells[this.at.x])), y.place(number(row.cells[this.at.y]))]);
        const path = points.map(([left, up], n) => (n ? `H${left}V${up}` : `M${left},${up}`)).join("");
        if (points.length) {
          element(svg, "path", { d: `${path}H${x.place(24)}`, class: `steps s${every.indexOf(name) % SERIES}` });
        }
      }
    }

    // The measured points that have both columns of the axes.
    runs() {
      const { measured, sheet, at } = this;
      const [x, y] = [at.x, at.y].map((column) => (measured ? measured.names.indexOf(sheet.names[column]) : -1));
      if (x < 0 || y < 0) return [];
      return measured.rows.filter((row) => !row.hidden)
        .map((row) => ({ row, x: number(row.cells[x]), y: number(row.cells[y]) }))
        .filter((run) => !Number.isNaN(run.x) && !Number.isNaN(run.y));
    }

    // All that is known of a row: its hints, then its cells.
    words(row) {
      const { sheet } = this;
      const hints = row.dataset.tip ? row.dataset.tip.split("\n") : [];
      const names = new Set(hints.map((line) => line.split(": ")[0]));
      const cells = [...row.cells].map((cell, n) => [sheet.titles[n], cell.textContent.trim()]);
      const rest = cells.filter(([name, value]) => value && value !== "-" && !names.has(name));
      return [...hints, ...(hints.length ? [] : rest.map((one) => one.join(": ")))].join("\n");
    }

    // Colours and their names, which hide their points when pressed.
    tell(every, shapes, hasRuns, hasBest) {
      const buttons = every.length < 2 ? [] : every.map((name, n) => {
        const button = document.createElement("button");
        button.type = "button";
        button.className = `s${n % SERIES}`;
        button.setAttribute("aria-pressed", String(!this.hidden.has(name)));
        button.append(document.createElement("i"), name);
        button.addEventListener("click", () => {
          if (!this.hidden.delete(name)) this.hidden.add(name);
          this.draw();
        });
        return button;
      });
      const signs = shapes.map((name, n) => `${"\u25cf\u25a0\u25b2\u25c6"[n % SHAPES.length]} ${name}`);
      const runs = hasRuns ? ["\u25c7 published run"] : [];
      const notes = [...(shapes.length > 1 ? signs : []), ...runs, ...(hasBest ? ["\u2605 the answer"] : [])].map((words) => {
        const made = document.createElement("span");
        made.textContent = words;
        return made;
      });
      this.legend.replaceChildren(...buttons, ...notes);
    }
  }

  // Details of anything with a tip, next to the mouse, the finger or the focus.
  function tips() {
    const box = document.createElement("div");
    box.id = "tip";
    box.setAttribute("role", "tooltip");
    box.hidden = true;
    document.body.append(box);
    const hide = () => { box.hidden = true; };
    const show = (target, left, top) => {
      const lines = target.dataset.tip.split("\n").map((line, n, all) => {
        const made = document.createElement("div");
        const [name, ...rest] = line.split(": ");
        if (all.length > 1 && rest.length && name.length < 30) {
          const strong = document.createElement("b");
          strong.textContent = name;
          made.append(strong, " ", rest.join(": "));
        } else made.textContent = line;
        return made;
      });
      box.replaceChildren(...lines);
      box.hidden = false;
      const { offsetWidth: wide, offsetHeight: tall } = box;
      box.style.left = `${Math.max(6, Math.min(left + 14, innerWidth - wide - 6))}px`;
      box.style.top = `${top + 18 + tall > innerHeight ? Math.max(6, top - tall - 12) : top + 18}px`;
    };
    const of = (event) => (event.target.closest ? event.target.closest("[data-tip]") : null);
    document.addEventListener("mousemove", (event) => {
      const target = of(event);
      if (target) show(target, event.clientX, event.clientY);
      else hide();
    });
    document.addEventListener("focusin", (event) => {
      const target = of(event);
      if (!target || !target.matches(":focus-visible")) return;
      const place = target.getBoundingClientRect();
      show(target, place.left, place.bottom - 12);
    });
    document.addEventListener("focusout", hide);
    document.addEventListener("scroll", hide, true);
    document.addEventListener("keydown", (event) => { if (event.key === "Escape") hide(); });
  }

  // The tables and charts that there are now; another answer in the same window tells of itself.
  function look() {
    addButtons();
    tables.clear();
    for (const box of document.querySelectorAll("[data-table]")) tables.set(box.dataset.table, new Sheet(box));
    for (const figure of document.querySelectorAll("[data-chart][data-table-of]")) {
      const sheet = tables.get(figure.dataset.tableOf);
      if (sheet) new Scatter(figure, sheet, tables.get(figure.dataset.measured));
    }
  }

  async function take(button, text, shown) {
    try {
      await navigator.clipboard.writeText(text);
      button.textContent = "Copied";
    } catch {
      getSelection().selectAllChildren(shown);
      button.textContent = "Press Ctrl-C";
    }
  }

  function copy(button) {
    const text = button.parentElement.querySelector("pre");
    take(button, text.textContent, text);
  }

  // The shown rows with tabs between cells, which spreadsheets read.
  function copyTable(button) {
    const table = button.closest("[data-table]").querySelector("table");
    const rows = [...table.rows].filter((row) => !row.hidden);
    const cell = (one) => one.textContent.trim().replace(/\s+/g, " ");
    take(button, rows.map((row) => [...row.cells].map(cell).join("\t")).join("\n"), table);
  }

  // The chart as it is drawn, with the colours of the page, as one SVG file.
  function downloadChart(button) {
    const figure = button.closest("figure");
    const { width, height } = figure.getBoundingClientRect();
    const copied = figure.cloneNode(true);
    copied.querySelectorAll(".axes, button.file").forEach((one) => one.remove());
    const styles = [...document.styleSheets].flatMap((sheet) => [...sheet.cssRules]).map((rule) => rule.cssText);
    const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
    svg.setAttribute("width", Math.ceil(width) + 32);
    svg.setAttribute("height", Math.ceil(height) + 32);
    const style = document.createElementNS("http://www.w3.org/2000/svg", "style");
    style.textContent = styles.join("\n");
    const place = document.createElementNS("http://www.w3.org/2000/svg", "foreignObject");
    for (const side of ["width", "height"]) place.setAttribute(side, "100%");
    const body = document.createElement("body");
    body.style.margin = body.style.padding = "0 16px";
    body.append(copied);
    place.append(body);
    svg.append(style, place);
    const link = document.createElement("a");
    link.href = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(new XMLSerializer().serializeToString(svg))}`;
    link.download = `${figure.dataset.chart || "chart"}.svg`;
    link.click();
  }

  function addButtons() {
    const add = (parent, words, className) => {
      if (!parent || parent.querySelector("button.file")) return;
      const button = document.createElement("button");
      button.type = "button";
      button.className = `file ${className}`;
      button.textContent = words;
      parent.append(button);
    };
    document.querySelectorAll("[data-table] > .bar").forEach((bar) => add(bar, "Copy as table", "table-copy"));
    document.querySelectorAll("figure[data-chart]").forEach((one) => add(one, "Download this chart", "chart-file"));
  }

  function begin() {
    look();
    tips();
    document.addEventListener("content", look);
    document.addEventListener("click", (event) => {
      const button = event.target.closest(".copy, button.file");
      if (!button) return;
      if (button.matches(".table-copy")) copyTable(button);
      else if (button.matches(".chart-file")) downloadChart(button);
      else copy(button);
    });
    document.addEventListener("keydown", (event) => {
      const isTyping = /^(INPUT|SELECT|TEXTAREA)$/.test(document.activeElement.tagName);
      const first = document.querySelector("input[type=search]");
      if (event.key === "/" && !isTyping && first) {
        event.preventDefault();
        first.focus();
      }
    });
  }

  begin();
})();
