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

  // Measured together and then changed together: a page is laid out a few times, not once a formula.
  function fit(boxes) {
    const open = boxes.filter((box) => box.clientWidth > 0); // what is folded is seen when it opens
    const parts = open.flatMap((box) =>
      box.matches(FORMULA)
        ? [{ part: box, needed: () => box.scrollWidth, given: () => box.clientWidth }]
        : [...box.querySelectorAll(":scope > table, :scope > div > table")].map((part) => ({
            part, needed: () => part.offsetWidth, given: () => room(box),
          })),
    );
    for (const { part } of parts) {
      part.dataset.size ??= part.style.fontSize || (part.matches(FORMULA) ? "1em" : "");
      part.style.fontSize = part.dataset.size;
    }
    const wide = parts
      .map(({ part, needed, given }) => ({ part, needed: needed(), given: given() }))
      .filter(({ needed, given }) => needed > given + 1);
    const sizes = wide.map(({ part }) => part.dataset.size || getComputedStyle(part).fontSize);
    wide.forEach(({ part, needed, given }, number) => {
      const share = Math.floor((98 * given) / needed) / 100;
      part.style.fontSize = `calc(${sizes[number]} * ${share < LEAST ? SCROLLED : share})`;
    });
    mark(open);
  }

  function mark(boxes) {
    const found = boxes.map((box) => [
      box,
      box.scrollWidth - box.clientWidth > 4,
      box.scrollWidth - box.clientWidth - box.scrollLeft > 4,
      box.scrollLeft > 4,
    ]);
    for (const [box, scrolls, right, left] of found) {
      if (scrolls && box.tabIndex < 0) box.tabIndex = 0; // to be scrolled from the keyboard
      box.classList.toggle("more-right", right);
      box.classList.toggle("more-left", left);
    }
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
    const sizes = new ResizeObserver((seen) => fit(seen.map(({ target }) => target)));
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
        if (target !== document && target.matches(boxes)) mark([target]);
      },
      { capture: true, passive: true },
    );
  });
})();
