// docutils calls a bibliography a list, and its entries what no list may hold: a screen reader
// would announce a list without entries.
document.addEventListener("DOMContentLoaded", () => {
  // What unfolds a part of the contents has a picture and no words.
  document.querySelectorAll("nav summary").forEach(e => e.setAttribute("aria-label", "Its pages"));
  document.querySelectorAll(".citation-list").forEach(e => e.removeAttribute("role"));
});
