"use strict";
// Tables that are sorted and filtered, and charts of what they show. Nothing is asked of a server.
(() => {
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const source = document.getElementById("page-data");
  const data = source ? JSON.parse(source.textContent) : { charts: {}, parts: {}, themes: {} };
  const tables = new Map();

  const number = (cell) => (cell.dataset.v === undefined ? NaN : Number(cell.dataset.v));
  const bare = (cell) => (cell.firstChild ? cell.firstChild.textContent : "").trim();

  // What stands in a name is text: the library of charts takes <b> and the like for markup.
  const text = (words) =>
    String(words).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");

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
      return this.heads.map((_, at) => at).filter((at) => this.heads[at].classList.contains("n") && has(at));
    }
  }

  const theme = () => data.themes[dark.matches ? "dark" : "light"];

  function layout(colors, more) {
    const axis = {
      gridcolor: colors.grid, linecolor: colors.grid, zerolinecolor: colors.grid,
      automargin: true, title: { standoff: 10 },
    };
    return {
      paper_bgcolor: colors.background, plot_bgcolor: colors.background,
      font: { color: colors.text, family: "inherit", size: 13 },
      margin: { l: 50, r: 12, t: 12, b: 44 },
      hoverlabel: { bgcolor: colors.panel, bordercolor: colors.muted, font: { color: colors.text }, align: "left" },
      legend: { orientation: "h", y: -0.22, font: { size: 12 } },
      ...more,
      xaxis: { ...axis, ...more.xaxis, title: { ...axis.title, ...(more.xaxis || {}).title } },
      yaxis: { ...axis, ...more.yaxis, title: { ...axis.title, ...(more.yaxis || {}).title } },
    };
  }

  const config = { responsive: true, displaylogo: false, modeBarButtonsToRemove: ["lasso2d", "select2d"] };

  function ends(cells, sign) {
    return cells.map((cell) => {
      const end = Number(cell.dataset[sign < 0 ? "lo" : "hi"]);
      return cell.dataset.lo === undefined ? 0 : Math.max(sign * (end - number(cell)), 0);
    });
  }

  const RECOMMENDED = "marked";
  const MOST_ENDS = 60;  // of more points the intervals hide each other

  function points(sheet, at, rows, colors, color, name, hasEnds) {
    const cells = (column) => rows.map((row) => row.cells[column]);
    const error = (column) => ({
      type: "data", symmetric: false, array: ends(cells(column), 1), arrayminus: ends(cells(column), -1),
      color: color + "88", thickness: 1, width: 0, visible: hasEnds,
    });
    const told = [...new Set([at.label, at.by, at.x, at.y])].filter((column) => column >= 0);
    const lines = (row) => told
      .map((n) => `${text(sheet.titles[n])}: ${text(row.cells[n].textContent.trim())}`).join("<br>");
    const isBest = name === RECOMMENDED;
    return {
      type: "scatter", mode: "markers", name: text(name),
      x: cells(at.x).map(number), y: cells(at.y).map(number),
      error_x: error(at.x), error_y: error(at.y),
      text: rows.map(lines), hovertemplate: "%{text}<extra></extra>",
      customdata: rows.map((row) => sheet.rows.indexOf(row)),
      marker: {
        color, size: isBest ? 15 : 8, symbol: isBest ? "star" : "circle",
        line: { color: colors.background, width: 1 },
      },
    };
  }

  function scatter(figure, chart) {
    const sheet = tables.get(chart.table);
    if (!sheet) return;
    const place = (name) => sheet.names.indexOf(name);
    const at = { x: place(chart.x), y: place(chart.y), by: place(chart.by), label: place(chart.label) };
    const drawn = figure.querySelector(".drawn");
    const box = document.createElement("input");
    box.type = "checkbox";
    const draw = () => {
      const colors = theme();
      const rows = sheet.rows.filter((row) => !row.hidden
        && !Number.isNaN(number(row.cells[at.x])) && !Number.isNaN(number(row.cells[at.y])));
      const named = (row) => (at.by < 0 ? "rows" : bare(row.cells[at.by]));
      const isBest = (row) => row.classList.contains("best");
      const every = [...new Set(sheet.rows.map(named))];
      const groups = every.map((name) => [name, rows.filter((row) => named(row) === name && !isBest(row))]);
      groups.push([RECOMMENDED, rows.filter(isBest)]);
      const color = (name, n) => (name === RECOMMENDED ? colors.recommended : colors.series[n % colors.series.length]);
      const traces = groups
        .map(([name, those], n) => points(
          sheet, at, those, colors, color(name, n), name, name === RECOMMENDED || rows.length <= MOST_ENDS,
        ))
        .filter((trace) => trace.x.length);
      const wide = drawn.clientWidth > 700;
      Plotly.react(drawn, traces, layout(colors, {
        height: wide ? 460 : 380, showlegend: traces.length > 1,
        xaxis: { title: { text: text(sheet.titles[at.x]) }, type: box.checked ? "log" : "linear" },
        yaxis: { title: { text: text(sheet.titles[at.y]) }, type: box.checked ? "log" : "linear" },
      }), config);
    };
    const axes = figure.querySelector(".axes");
    for (const axis of ["x", "y"]) {
      const label = document.createElement("label");
      const choice = document.createElement("select");
      for (const n of sheet.numeric()) choice.add(new Option(sheet.titles[n], n, false, n === at[axis]));
      choice.addEventListener("change", () => { at[axis] = Number(choice.value); draw(); });
      label.append(axis === "x" ? "across " : "up ", choice);
      axes.append(label);
    }
    const logarithmic = document.createElement("label");
    box.addEventListener("change", draw);
    logarithmic.append(box, " logarithmic");
    axes.append(logarithmic);
    sheet.listeners.push(draw);
    dark.addEventListener("change", draw);
    draw();
    drawn.on("plotly_click", (event) => {
      const row = sheet.rows[event.points[0].customdata];
      sheet.rows.forEach((one) => one.classList.toggle("chosen", one === row));
      row.scrollIntoView({ block: "nearest" });
    });
  }

  function bars(figure, chart) {
    const drawn = figure.querySelector(".drawn");
    const labels = chart.labels.map(text);
    const draw = () => {
      const colors = theme();
      const narrow = drawn.clientWidth < 700;
      const traces = Object.entries(chart.parts).map(([part, values]) => ({
        type: "bar", orientation: "h", name: text(data.parts[part]), x: values, y: labels,
        marker: { color: colors.parts[part], line: { color: colors.background, width: 1 } },
        hovertemplate: `${text(data.parts[part])}: %{x:.3~g} ${text(chart.unit)}<extra></extra>`,
      }));
      const entries = Math.ceil(traces.length / (narrow ? 1 : 5));
      const most = Math.floor(drawn.clientWidth / 7);
      const short = (words) => (words.length > most ? `${words.slice(0, most - 1)}\u2026` : words);
      Plotly.react(drawn, traces, layout(colors, {
        barmode: "stack", height: (narrow ? 68 : 40) * labels.length + 90 + 20 * entries,
        yaxis: narrow ? { autorange: "reversed", showticklabels: false } : { autorange: "reversed" },
        xaxis: { title: { text: text(chart.unit) }, side: "top" },
        margin: { l: narrow ? 8 : 50, r: 12, t: 48, b: 8 },
        annotations: narrow ? chart.labels.map((words, n) => ({
          text: text(short(words)), x: 0, xref: "paper", xanchor: "left", align: "left",
          y: n - 0.25, yref: "y", yanchor: "bottom", showarrow: false, font: { size: 11 }, borderpad: 0,
        })) : [],
        bargap: narrow ? 0.55 : 0.3,
        legend: { orientation: "h", y: 0, yanchor: "top", traceorder: "normal", font: { size: 12 } },
      }), config);
    };
    dark.addEventListener("change", draw);
    draw();
  }

  function draw() {
    for (const figure of document.querySelectorAll("[data-chart]")) {
      const chart = data.charts[figure.dataset.chart];
      if (chart) ({ scatter, bars })[chart.kind](figure, chart);
    }
  }

  function begin() {
    for (const box of document.querySelectorAll("[data-table]")) tables.set(box.dataset.table, new Sheet(box));
    if (window.Plotly) draw();
    else document.addEventListener("library", draw, { once: true });
    for (const button of document.querySelectorAll(".copy")) {
      button.addEventListener("click", async () => {
        const words = button.parentElement.querySelector("pre").textContent;
        try {
          await navigator.clipboard.writeText(words);
          button.textContent = "Copied";
        } catch {
          getSelection().selectAllChildren(button.parentElement.querySelector("pre"));
          button.textContent = "Press Ctrl-C";
        }
      });
    }
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
