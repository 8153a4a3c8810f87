// What the page can do beyond being read: hide, filter, group and sort runs; sort tables by a click
// on a heading; copy tables as tab-separated values. Nothing is fetched, and nothing is stored.
"use strict";
(() => {
  const all = (selector, root = document) => [...root.querySelectorAll(selector)];
  const make = (tag, attributes = {}, ...children) => {
    const node = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
    node.append(...children);
    return node;
  };

  // Text of a cell or heading on one line; a heading's line break is a blank.
  const words = (node) => {
    const copy = node.cloneNode(true);
    all("br", copy).forEach((one) => one.replaceWith(" "));
    all(".sd", copy).forEach((one) => one.prepend(" "));
    return copy.textContent.replaceAll("\u2212", "-").replace(/\s+/g, " ").trim();
  };
  const number = (text) => {
    const found = /^[-+]?\d+(\.\d+)?(e[-+]?\d+)?/.exec(text);
    return found ? Number(found[0]) : NaN;
  };
  // The cells of a row by column: a cell over several columns counts in the first of them.
  const grid = (row) => {
    const cells = [];
    for (const cell of row.cells) {
      cells.push(cell);
      for (let more = 1; more < cell.colSpan; more += 1) cells.push(null);
    }
    return cells;
  };

  /* Runs */
  const section = document.getElementById("runs");
  const runs = section
    ? all("li[data-run]", section).map((item, place) => ({
        id: item.dataset.run,
        item,
        place,
        name: item.querySelector(".name").textContent,
        group: item.dataset.group || "",
        method: item.dataset.method || "",
        score: number(item.dataset.score || ""),
        forgetting: number(item.dataset.forgetting || ""),
        box: make("input", { type: "checkbox", checked: "" }),
      }))
    : [];
  const byName = new Map(runs.map((run) => [run.name, run]));
  const byId = new Map(runs.map((run) => [run.id, run]));

  // Rows and groups of rows of a run are hidden with it.
  const tagTables = () => {
    for (const table of all("main table")) {
      const heads = table.tHead && table.tHead.rows.length ? [...table.tHead.rows].at(-1) : null;
      const place = heads ? grid(heads).findIndex((cell) => cell && words(cell) === "run") : -1;
      for (const body of table.tBodies) {
        const group = body.rows.length ? body.rows[0].querySelector("th.group") : null;
        const whole = group && byName.get(group.textContent);
        if (whole) body.dataset.run = whole.id;
        for (const row of place < 0 ? [] : body.rows) {
          const cell = grid(row)[place];
          const run = cell && byName.get(cell.textContent);
          if (run) row.dataset.run = run.id;
        }
      }
    }
  };

  const orders = {
    "as in the tables": (one, other) => one.place - other.place,
    name: (one, other) => one.name.localeCompare(other.name, "en", { numeric: true }),
    "final score, best first": (one, other) => last(other.score) - last(one.score),
    "forgetting, least first": (one, other) => -last(-one.forgetting) + last(-other.forgetting),
  };
  const last = (value) => (Number.isNaN(value) ? -1e300 : value);
  const groupings = { none: () => "", memory: (run) => run.group, method: (run) => run.method };

  const runControls = () => {
    const sheet = make("style");
    const lit = make("style");
    document.head.append(sheet, lit);
    const filter = make("input", { type: "search", size: "24", placeholder: "words of name or method" });
    const choice = (names) => make("select", {}, ...names.map((name) => new Option(name, name)));
    const order = choice(Object.keys(orders));
    const grouping = choice(Object.keys(groupings));
    const state = make("span", { role: "status" });

    const matches = (run) => {
      const text = `${run.name} ${run.method} ${run.group}`.toLowerCase();
      return filter.value.toLowerCase().split(/\s+/).every((word) => text.includes(word));
    };
    const show = () => {
      const hidden = runs.filter((run) => !run.box.checked || !matches(run));
      const rules = hidden.map((run) => `main [data-run="${run.id}"]`);
      sheet.textContent = rules.length ? `${rules.join(",")} { display: none !important; }` : "";
      runs.forEach((run) => run.item.classList.toggle("out", hidden.includes(run)));
      state.textContent = `${runs.length - hidden.length} of ${runs.length} runs shown`;
    };
    const arrange = () => {
      const group = groupings[grouping.value];
      const groups = [...new Set(runs.map(group))];
      const sorted = [...runs].sort(
        (one, other) =>
          groups.indexOf(group(one)) - groups.indexOf(group(other)) ||
          orders[order.value](one, other) || one.place - other.place,
      );
      const place = (parent, nodes, heading) => {
        all(":scope > .break", parent).forEach((node) => node.remove());
        let before = "";
        for (const run of sorted) {
          const found = nodes.filter((node) => node.dataset.run === run.id);
          if (found.length && group(run) !== before) {
            before = group(run);
            parent.append(heading(before));
          }
          parent.append(...found);
        }
      };
      const list = section.querySelector(".legend");
      place(list, runs.map((run) => run.item), (text) => make("li", { class: "break" }, text));
      for (const parent of all("main .panels")) {
        const figures = all(":scope > figure[data-run]", parent);
        if (figures.length) place(parent, figures, (text) => make("h4", { class: "break" }, text));
      }
    };
    const setAll = (checked) => {
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
    grouping.addEventListener("change", arrange);
    for (const run of runs) {
      run.box.addEventListener("change", show);
      run.item.append(make("label", {}, run.box, ...run.item.childNodes));
      const light = (isOn) => () => {
        lit.textContent = isOn
          ? `main figure svg [data-run]:not([data-run="${run.id}"]) { opacity: .12; }`
          : "";
      };
      run.item.addEventListener("pointerenter", light(true));
      run.item.addEventListener("pointerleave", light(false));
      run.item.addEventListener("focusin", light(true));
      run.item.addEventListener("focusout", light(false));
    }
    section.querySelector(".legend").before(
      make("div", { class: "controls" },
        make("label", {}, "Filter", filter),
        make("label", {}, "Group by", grouping),
        make("label", {}, "Sort by", order),
        button("Show all", () => setAll(true)),
        button("Hide all", () => setAll(false)),
        state,
      ),
    );
    show();
  };

  // A run is also lit up from the legend of a chart.
  const legendsOfCharts = () => {
    for (const figure of all("main figure")) {
      const lit = make("style");
      for (const item of all(":scope > .legend > li[data-run]", figure)) {
        const others = `[data-run]:not([data-run="${item.dataset.run}"])`;
        item.addEventListener("pointerenter", () => {
          document.head.append(lit);
          figure.classList.add("lit");
          lit.textContent = `figure.lit svg ${others} { opacity: .12; }`;
        });
        item.addEventListener("pointerleave", () => {
          figure.classList.remove("lit");
          lit.remove();
        });
      }
    }
  };

  /* Tables */
  const sortable = (table) => {
    const heads = table.tHead && table.tHead.rows.length ? [...table.tHead.rows].at(-1) : null;
    if (!heads || table.classList.contains("ordered")) return;
    grid(heads).forEach((head, column) => {
      if (!head || head.tagName !== "TH" || head.colSpan > 1) return;
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
  };
  const sortRows = (body, column, isWords, sign) => {
    const rows = [...body.rows].filter((row) => !row.querySelector("th.group"));
    const keys = new Map(rows.map((row) => [row, words(grid(row)[column] || make("td"))]));
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

  const asText = (table) => {
    const seen = (node) => node.getClientRects().length > 0;
    const line = (row) => grid(row).map((cell) => (cell ? words(cell) : "")).join("\t");
    const lines = table.tHead ? [...table.tHead.rows].map(line) : [];
    const groups = [...table.tBodies].map((body) => body.querySelector("th.group"));
    const hasGroups = groups.filter(Boolean).length > 1;
    const body = [...table.tBodies].flatMap((one, place) =>
      [...one.rows]
        .filter((row) => !row.querySelector("th.group") && seen(row))
        .map((row) => (hasGroups ? `${groups[place] ? words(groups[place]) : ""}\t` : "") + line(row)),
    );
    return [...lines.map((text) => (hasGroups ? `group\t${text}` : text)), ...body].join("\n") + "\n";
  };
  const copy = async (text) => {
    try {
      await navigator.clipboard.writeText(text);
      return true;
    } catch { // no permission, or a browser that has no clipboard for files
      const area = make("textarea", { readonly: "" });
      area.value = text;
      document.body.append(area);
      area.select();
      const done = document.execCommand("copy");
      area.remove();
      return done;
    }
  };
  const copyable = (table) => {
    const button = make("button", { type: "button" }, "Copy");
    const name = table.caption ? table.caption.textContent : table.getAttribute("aria-label") || "";
    button.title = "Copy as tab-separated values";
    button.setAttribute("aria-label", `Copy the table ${name} as tab-separated values`);
    button.addEventListener("click", async () => {
      button.textContent = (await copy(asText(table))) ? "Copied" : "Not copied";
      setTimeout(() => (button.textContent = "Copy"), 2000);
    });
    const box = table.closest(".scroll") || table;
    box.before(make("div", { class: "tools" }, button));
  };

  // A box that scrolls can be reached with the keyboard.
  const reachable = () => {
    for (const box of all(".scroll")) {
      if (box.scrollWidth > box.clientWidth + 1) {
        box.tabIndex = 0;
        box.setAttribute("role", "region");
        const table = box.querySelector("table");
        const name = table && (table.caption ? table.caption.textContent : table.ariaLabel);
        box.setAttribute("aria-label", name || "Chart");
      } else {
        ["tabindex", "role", "aria-label"].forEach((one) => box.removeAttribute(one));
      }
    }
  };

  if (runs.length > 1) {
    tagTables();
    runControls();
    legendsOfCharts();
  }
  for (const table of all("table")) {
    sortable(table);
    copyable(table);
  }
  reachable();
  addEventListener("resize", reachable);
})();
