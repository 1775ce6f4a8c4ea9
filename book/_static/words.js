// Text as words with one space before each, so that "table" finds tables and nothing representable.
// Accents go: who types "Nystrom" means Nyström.
const asWords = (text) =>
  ` ${text.normalize("NFKD").replace(/\p{M}/gu, "").toLowerCase().match(/[\p{L}\p{N}]+/gu)?.join(" ") ?? ""}`;
