// Reading and checking, apart. In "Read" a verdict is a chip that opens its box; in "Check" all
// boxes are open, with the code and the notes on how things were made. Without this script
// everything is shown, as it is in print.
(() => {
  const KEY = "bayesloss-mode";
  const root = document.documentElement;

  const remembered = () => {
    try {
      return localStorage.getItem(KEY);
    } catch {
      return null; // a browser may forbid it
    }
  };
  // Before the page is drawn, so that nothing jumps.
  root.dataset.show = remembered() === "check" ? "check" : "read";

  function make(tag, attributes, ...content) {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    element.append(...content);
    return element;
  }

  const outputOf = (box) => box.closest(".output");
  const chipOf = (box) => document.querySelector(`.chip[aria-controls="${box.id}"]`);

  // A chip in the text opens its box beneath its paragraph; a comment keeps the box's place.
  const away = new Map();

  function open(box, whether) {
    const output = outputOf(box);
    const chip = chipOf(box);
    output.classList.toggle("is-open", whether);
    chip?.setAttribute("aria-expanded", String(whether));
    if (whether && chip?.matches("a") && !away.has(output)) {
      const kept = document.createComment("");
      output.replaceWith(kept);
      away.set(output, kept);
      const block = chip.closest("p, li, table, figcaption");
      if (block.matches("li")) block.append(output);
      else block.after(output);
    } else if (!whether && away.has(output)) {
      away.get(output).replaceWith(output);
      away.delete(output);
    }
  }

  // "W&N, Section 2, equation (1)" is "(1)" on a chip.
  const place = (box) => box.querySelector(".claim-head").lastChild.textContent.trim()
    .replace(/^[^,]*, /, "").split(", ").pop().replace(/^equations? /, "");

  function chip(box) {
    const verdict = box.querySelector(".claim-verdict").cloneNode(true);
    const classes = [...box.classList].filter((name) => name.startsWith("claim-"));
    const button = make(
      "button",
      {
        type: "button",
        class: ["chip", ...classes].join(" "),
        "aria-expanded": "false",
        "aria-controls": box.id,
      },
      `${place(box)} `,
      verdict,
    );
    answerTo(button, box);
    return button;
  }

  function answerTo(chip, box) {
    chip.addEventListener("click", (event) => {
      if (root.dataset.show === "check") return; // then a chip in the text is a link
      event.preventDefault();
      open(box, chip.getAttribute("aria-expanded") !== "true");
    });
  }

  // Chips that the text has: a link to a box on another page stays a link.
  function bind() {
    for (const link of document.querySelectorAll(".bd-article a.chip")) {
      const box = document.getElementById(link.hash.slice(1));
      if (!box || link.pathname !== location.pathname || chipOf(box)) continue;
      link.setAttribute("role", "button");
      link.setAttribute("aria-expanded", "false");
      link.setAttribute("aria-controls", box.id);
      link.addEventListener("keydown", (event) => {
        if (event.key === " ") {
          event.preventDefault();
          link.click();
        }
      });
      answerTo(link, box);
    }
  }

  // A box for which the text has no chip gets one where it stands.
  function fold(cell) {
    const boxes = [...cell.querySelectorAll(".claim[id]")];
    boxes.forEach((box) => outputOf(box).classList.add("evidence"));
    const bare = cell.closest("#evidence") ? [] : boxes.filter((box) => !chipOf(box));
    if (bare.length === 0) return;
    const row = make("p", { class: "chips" }, ...bare.map(chip));
    cell.querySelector(".cell_output").insertBefore(row, outputOf(bare[0]));
  }

  // What the signs mean, above the first chip's paragraph: those that the page has.
  function explain() {
    const chips = [...document.querySelectorAll(".bd-article a.chip:not(#evidence *)")];
    if (chips.length === 0) return;
    const verdicts = new Map();
    for (const { lastElementChild: verdict } of chips) {
      verdicts.set(verdict.className, verdict.cloneNode(true));
    }
    const signs = [...verdicts.values()].flatMap((verdict) => [verdict, " "]);
    const legend = make("p", { class: "legend" }, "What became of the claims on this page: ", ...signs);
    legend.append("A click on one opens its check.");
    let block = chips[0];
    while (!block.parentElement.matches("section")) block = block.parentElement;
    block.before(legend);
  }

  // The section "Evidence" is one bar in Read.
  function foldSection() {
    const section = document.getElementById("evidence");
    const heading = section?.querySelector(":scope > :is(h2, h3)");
    if (!heading) return;
    const count = (what, one, many) => {
      const n = section.querySelectorAll(what).length;
      return n ? [`${n} ${n === 1 ? one : many}`] : [];
    };
    const holds = [
      ...count(".claim[id]", "verdict", "verdicts"),
      ...count(".cell_output table:not(.claim table)", "table", "tables"),
      ...count("img", "figure", "figures"),
      ...count("details.sd-sphinx-override", "derivation", "derivations"),
    ];
    const bar = make(
      "button",
      { type: "button", class: "evidence-bar", "aria-expanded": "false" },
      `Show the evidence${holds.length ? ": " : ""}${holds.join(", ")}`,
    );
    bar.addEventListener("click", () => {
      const whether = section.classList.toggle("is-open");
      bar.setAttribute("aria-expanded", String(whether));
      reach();
    });
    heading.after(bar);
  }

  function reveal() {
    const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    const box = target?.closest(".claim[id]");
    if (root.dataset.show === "read") {
      const section = document.getElementById("evidence");
      if (box) open(box, true);
      // A box without a chip in the text, a figure or a table stands there.
      if (target && section?.contains(target) && target !== section) {
        section.classList.add("is-open");
        section.querySelector(".evidence-bar").setAttribute("aria-expanded", "true");
      }
    }
    (box ?? target)?.scrollIntoView({ block: "start" });
  }

  // What scrolls must be reached from the keyboard; the theme looks when the page is loaded, and
  // sees no width of what is folded.
  function reach() {
    const parts = [...document.querySelectorAll(".bd-article :is(pre, .output)")];
    const scroll = parts.map((part) => part.scrollWidth > part.clientWidth); // one layout for all
    parts.forEach((part, number) => {
      if (scroll[number]) part.tabIndex = 0;
      else part.removeAttribute("tabindex");
    });
  }

  function addSwitch() {
    const choice = (value, says) => {
      const input = make("input", { type: "radio", name: "mode", value });
      input.checked = root.dataset.show === value;
      input.addEventListener("change", () => {
        root.dataset.show = value;
        [...away.keys()].forEach((output) => open(output.querySelector(".claim[id]"), false));
        try {
          localStorage.setItem(KEY, value);
        } catch {
          // then it holds for this page only
        }
        reach();
      });
      return make("label", { title: says }, input, make("span", {}, value === "read" ? "Read" : "Check"));
    };
    const group = make(
      "div",
      { class: "mode-switch", role: "radiogroup", "aria-label": "What is shown" },
      choice("read", "The argument; a verdict opens its evidence"),
      choice("check", "All evidence, code and provenance"),
    );
    document.querySelector(".article-header-buttons")?.prepend(group);
  }

  document.addEventListener("DOMContentLoaded", () => {
    const cells = document.querySelectorAll(".bd-article .cell");
    if (cells.length === 0) return;
    // Boxes that are quoted from another page, as the errata do, have no address, and fold as well.
    document.querySelectorAll(".bd-article .output .claim:not([id])").forEach((box, number) => {
      box.id = `quoted-${number + 1}`;
    });
    bind();
    explain();
    cells.forEach(fold);
    foldSection();
    addSwitch();
    reveal();
    reach();
    window.addEventListener("hashchange", reveal);
  });
})();
