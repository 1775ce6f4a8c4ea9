// A formula or table that is wider than its column is made smaller until it fits. What would have to
// be smaller than LEAST scrolls, and fades at the side where there is more.
(() => {
  const LEAST = 0.62; // of its own size
  const SCROLLED = 0.85;
  const WIDE = 600; // pixels; a figure whose words would be too small on a phone
  const FORMULA = "mjx-container";
  const BOX = ".text_html, .pst-scrollable-table-container, .table-wrapper, .claim, pre";
  const boxes = "mjx-container, div.math, .drawing, .output, .cell_output, " + BOX;

  const room = (box) => {
    const { paddingLeft, paddingRight } = getComputedStyle(box);
    return box.clientWidth - parseFloat(paddingLeft) - parseFloat(paddingRight);
  };

  function shrink(element, needed, given) {
    const share = Math.floor((98 * given) / needed) / 100;
    element.style.fontSize = `calc(${element.dataset.size} * ${share < LEAST ? SCROLLED : share})`;
  }

  function fit(box) {
    if (box.clientWidth === 0) return; // folded; it is seen again when it opens
    if (box.matches(FORMULA)) {
      box.dataset.size ||= box.style.fontSize || "1em";
      box.style.fontSize = box.dataset.size;
      if (box.scrollWidth > box.clientWidth + 1) shrink(box, box.scrollWidth, box.clientWidth);
    } else {
      for (const table of box.querySelectorAll(":scope > table, :scope > div > table")) {
        table.style.fontSize = "";
        const given = room(box);
        if (table.offsetWidth > given + 1) {
          table.dataset.size = getComputedStyle(table).fontSize;
          shrink(table, table.offsetWidth, given);
        }
      }
    }
    mark(box);
  }

  function mark(box) {
    const scrolls = box.scrollWidth > box.clientWidth + 4;
    if (scrolls && box.tabIndex < 0) box.tabIndex = 0; // to be scrolled from the keyboard
    box.classList.toggle("more-right", box.scrollWidth - box.clientWidth - box.scrollLeft > 4);
    box.classList.toggle("more-left", box.scrollLeft > 4);
  }

  // A figure scrolls without its caption.
  function wrap(image) {
    const box = document.createElement("div");
    box.className = "drawing";
    image.replaceWith(box);
    box.append(image);
    const see = () => box.classList.toggle("is-wide", image.naturalWidth > WIDE);
    image.complete ? see() : image.addEventListener("load", see);
  }

  document.addEventListener("DOMContentLoaded", () => {
    const article = document.querySelector(".bd-article");
    if (!article) return;
    article.querySelectorAll("figure > img").forEach(wrap);
    const sizes = new ResizeObserver((seen) => seen.forEach(({ target }) => fit(target)));
    const watch = (part) => {
      if (part.matches(boxes)) sizes.observe(part);
      part.querySelectorAll(boxes).forEach((box) => sizes.observe(box));
    };
    watch(article);
    // MathJax typesets a formula when it comes into view.
    new MutationObserver((changes) => {
      for (const { addedNodes } of changes) {
        for (const node of addedNodes) if (node.nodeType === Node.ELEMENT_NODE) watch(node);
      }
    }).observe(article, { childList: true, subtree: true });
    document.addEventListener(
      "scroll",
      ({ target }) => {
        if (target !== document && target.matches(boxes)) mark(target);
      },
      { capture: true, passive: true },
    );
  });
})();
