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

  function open(box, whether) {
    box.closest(".output").classList.toggle("is-open", whether);
    document.querySelector(`button.chip[aria-controls="${box.id}"]`)
      ?.setAttribute("aria-expanded", String(whether));
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
    button.addEventListener("click", () => {
      open(box, button.getAttribute("aria-expanded") !== "true");
    });
    return button;
  }

  function fold(cell) {
    const boxes = [...cell.querySelectorAll(".claim[id]")];
    if (boxes.length === 0) return;
    const outputs = cell.querySelector(".cell_output");
    const row = make("p", { class: "chips" }, ...boxes.map(chip));
    outputs.insertBefore(row, boxes[0].closest(".output"));
    boxes.forEach((box) => box.closest(".output").classList.add("evidence"));
  }

  function reveal() {
    const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    const box = target?.closest(".claim[id]");
    if (!box) return;
    open(box, true);
    box.scrollIntoView({ block: "start" });
  }

  // What scrolls must be reached from the keyboard; the theme looks when the page is loaded, and
  // sees no width of what is folded.
  function reach() {
    for (const code of document.querySelectorAll(".bd-article pre")) {
      code.tabIndex = code.scrollWidth > code.clientWidth ? 0 : -1;
    }
  }

  function addSwitch() {
    const choice = (value, says) => {
      const input = make("input", { type: "radio", name: "mode", value });
      input.checked = root.dataset.show === value;
      input.addEventListener("change", () => {
        root.dataset.show = value;
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
    cells.forEach(fold);
    addSwitch();
    reveal();
    window.addEventListener("hashchange", reveal);
  });
})();
