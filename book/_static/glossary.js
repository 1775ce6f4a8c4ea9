// A term in the text shows its meaning on hover and on focus; Escape closes it. The meanings stand
// on the page, hidden (tools/chapters.py). Without this script the term is a link to the glossary.
(() => {
  document.addEventListener("DOMContentLoaded", () => {
    const tip = document.createElement("div");
    tip.className = "term-tip";
    tip.hidden = true;
    document.querySelector(".bd-article")?.append(tip);
    let shown = null;

    const hide = () => {
      tip.hidden = true;
      shown = null;
    };

    function show(link, meaning) {
      tip.innerHTML = meaning.innerHTML;
      tip.hidden = false;
      shown = link;
      const at = link.getClientRects()[0];
      const { width, height } = tip.getBoundingClientRect();
      const end = document.documentElement.clientWidth - width - 8;
      const below = at.bottom + height + 8 < innerHeight;
      tip.style.left = `${Math.max(8, Math.min(at.left, end))}px`;
      tip.style.top = `${below ? at.bottom + 2 : at.top - height - 2}px`;
    }

    for (const word of document.querySelectorAll(".bd-article a > .std-term")) {
      const link = word.parentElement;
      const meaning = document.getElementById(`about-${link.hash.slice("#term-".length).toLowerCase()}`);
      if (!meaning) continue;
      link.classList.add("term");
      link.removeAttribute("title");
      link.setAttribute("aria-describedby", meaning.id);
      link.addEventListener("mouseenter", () => show(link, meaning));
      link.addEventListener("focus", () => show(link, meaning));
      link.addEventListener("blur", hide);
      link.addEventListener("mouseleave", ({ relatedTarget }) => {
        if (relatedTarget !== tip && document.activeElement !== link) hide();
      });
    }
    tip.addEventListener("mouseleave", () => document.activeElement !== shown && hide());
    document.addEventListener("scroll", hide, { passive: true });
    document.addEventListener("keydown", ({ key }) => key === "Escape" && hide());
  });
})();
