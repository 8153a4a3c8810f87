// What the page can do beyond being read: hide, filter and sort runs; sort tables by a click on a
// heading. Nothing is fetched, and nothing is stored.
"use strict";
(() => {
  const all = (selector, root = document) => [...root.querySelectorAll(selector)];
  const make = (tag, attributes = {}, ...children) => {
    const node = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
    node.append(...children);
    return node;
  };
  const words = (node) => node.textContent.replaceAll("\u2212", "-").replace(/\s+/g, " ").trim();
  const number = (text) => {
    const found = /^[-+]?\d+(\.\d+)?(e[-+]?\d+)?/.exec(text);
    return found ? Number(found[0]) : NaN;
  };
  const heads = (table) => [...(table.tHead ? [...table.tHead.rows].at(-1).cells : [])];

  /* Runs */
  const section = document.getElementById("runs");
  const runs = all("#runs li[data-run]").map((item, place) => ({
    id: item.dataset.run,
    item,
    place,
    name: item.querySelector(".name").textContent,
    score: number(item.dataset.score || ""),
    forgetting: number(item.dataset.forgetting || ""),
    box: make("input", { type: "checkbox", checked: "" }),
  }));
  const byName = new Map(runs.map((run) => [run.name, run]));

  // Rows and groups of rows of a run are hidden with it.
  const tagTables = () => {
    for (const table of all("main table")) {
      const place = heads(table).findIndex((cell) => cell.textContent === "run");
      for (const body of table.tBodies) {
        const group = body.querySelector("th.group");
        const whole = group && byName.get(group.textContent);
        if (whole) body.dataset.run = whole.id;
        for (const row of place < 0 ? [] : body.rows) {
          const run = byName.get(row.cells[place]?.textContent);
          if (run) row.dataset.run = run.id;
        }
      }
    }
  };

  const last = (value) => (Number.isNaN(value) ? -1e300 : value);
  const orders = {
    "as in the tables": (one, other) => one.place - other.place,
    name: (one, other) => one.name.localeCompare(other.name, "en", { numeric: true }),
    "final score, best first": (one, other) => last(other.score) - last(one.score),
    "forgetting, least first": (one, other) => -last(-one.forgetting) + last(-other.forgetting),
  };

  const runControls = () => {
    const sheet = make("style");
    const lit = make("style");
    document.head.append(sheet, lit);
    const filter = make("input", { type: "search", size: "24", placeholder: "words of the name" });
    const order = make("select", {}, ...Object.keys(orders).map((name) => new Option(name, name)));
    const state = make("span", { role: "status" });
    const matches = (run) =>
      filter.value.toLowerCase().split(/\s+/).every((word) => run.name.toLowerCase().includes(word));
    const show = () => {
      const hidden = runs.filter((run) => !run.box.checked || !matches(run));
      const rules = hidden.map((run) => `main [data-run="${run.id}"], .lead + figure [data-run="${run.id}"]`);
      sheet.textContent = rules.length ? `${rules.join(",")} { display: none !important; }` : "";
      runs.forEach((run) => run.item.classList.toggle("out", hidden.includes(run)));
      state.textContent = `${runs.length - hidden.length} of ${runs.length} runs shown`;
    };
    const arrange = () => {
      const sorted = [...runs].sort(
        (one, other) => orders[order.value](one, other) || one.place - other.place,
      );
      section.querySelector(".legend").append(...sorted.map((run) => run.item));
      for (const parent of all("main .panels")) {
        const figures = all(":scope > figure[data-run]", parent);
        for (const run of sorted) {
          parent.append(...figures.filter((one) => one.dataset.run === run.id));
        }
      }
    };
    const setAll = (checked) => () => {
      runs.filter(matches).forEach((run) => (run.box.checked = checked));
      show();
    };
    const button = (text, act) => {
      const node = make("button", { type: "button" }, text);
      node.addEventListener("click", act);
      return node;
    };
    filter.addEventListener("input", show);
    order.addEventListener("change", arrange);
    for (const run of runs) {
      run.box.addEventListener("change", show);
      run.item.append(make("label", {}, run.box, ...run.item.childNodes));
    }
    // A run is lit up from this list and from the legend of any chart.
    for (const item of all(".legend > li[data-run]")) {
      const others = `figure svg [data-run]:not([data-run="${item.dataset.run}"])`;
      const light = (rule) => () => (lit.textContent = rule);
      for (const name of ["pointerenter", "focusin"]) {
        item.addEventListener(name, light(`${others} { opacity: .12; }`));
      }
      for (const name of ["pointerleave", "focusout"]) item.addEventListener(name, light(""));
    }
    section.querySelector(".legend").before(
      make("div", { class: "controls" },
        make("label", {}, "Filter", filter),
        make("label", {}, "Sort by", order),
        button("Show all", setAll(true)),
        button("Hide all", setAll(false)),
        state,
      ),
    );
    show();
  };

  if (runs.length > 1) {
    tagTables(); // before headings become buttons
    runControls();
  }

  /* Tables */
  const sortRows = (body, column, isWords, sign) => {
    const rows = [...body.rows].filter((row) => !row.querySelector("th.group"));
    const keys = new Map(rows.map((row) => [row, words(row.cells[column] || make("td"))]));
    const compare = (one, other) => {
      if (isWords) {
        return sign * keys.get(one).localeCompare(keys.get(other), "en", { numeric: true });
      }
      const [a, b] = [number(keys.get(one)), number(keys.get(other))];
      if (Number.isNaN(a) || Number.isNaN(b)) return Number.isNaN(a) - Number.isNaN(b);
      return sign * (a - b);
    };
    body.append(...rows.sort(compare));
  };
  for (const table of all("table:not(.ordered, .heat)")) {
    heads(table).forEach((head, column) => {
      if (head.tagName !== "TH" || head.colSpan > 1) return;
      const button = make("button", { type: "button" }, ...head.childNodes);
      button.title = "Sort by this column";
      head.append(button);
      button.addEventListener("click", () => {
        // Numbers start with the largest, words with the first of the alphabet.
        const isWords = head.classList.contains("words");
        const before = head.getAttribute("aria-sort");
        const ascending = before ? before === "descending" : isWords;
        all("th[aria-sort]", table).forEach((one) => one.removeAttribute("aria-sort"));
        head.setAttribute("aria-sort", ascending ? "ascending" : "descending");
        for (const body of table.tBodies) sortRows(body, column, isWords, ascending ? 1 : -1);
      });
    });
  }

  // A box that scrolls can be reached with the keyboard.
  const reachable = () => {
    for (const box of all(".scroll")) {
      const scrolls = box.scrollWidth > box.clientWidth + 1;
      box.tabIndex = scrolls ? 0 : -1;
      if (!scrolls) box.removeAttribute("tabindex");
    }
  };

  reachable();
  addEventListener("resize", reachable);
})();
