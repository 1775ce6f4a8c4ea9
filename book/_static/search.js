// The search page: ranks the sections, claims and entries of the API in SEARCH_INDEX for the words
// of the address or the field, by BM25F (Robertson and Zaragoza 2009, section 3.6) on words and pairs
// of neighbours. What a reader names in full, such as "Theorem 8", leads to what bears that name.
(() => {
  const SHOWN = 50;
  const EXCERPT = 220; // characters
  // What a word says in a title, in the phrases that readers type for a place, and in the text.
  const FIELDS = { title: 1, asked: 1, text: 0.25 };
  const SATURATION = 3; // of how many times a word is said the half of its weight is reached
  const LENGTH = 0.75; // how far words count less in a longer field
  const PAIR = 0.5; // what two neighbours say beside the two words
  const NAMED = 50; // what a place gains that bears the words as its name, more than words can give
  const PAGE = 1.1; // a page before its sections
  const PACKAGE = 0.5; // the package after the book
  // How often a page is what readers want before they say a word: as often as phrases were written
  // for it, by those who had not seen it.
  const prior = (page) => Math.log(1 + page.asked.length);
  // What titles abbreviate and readers may write in full.
  const WHOLE = { ep: "expectation propagation", gp: "gaussian process" };
  // What newcomers type that says nothing of the place.
  const STOP = new Set("a an and can do does don for how i in is it my of on our s t the their this to use using what when with your".split(" "));
  // "Table 3, line 7" is looked for at its table.
  const LINE = /(?<=\d),? (?:lines?|rows?|columns?) \d+\s*$/i;
  // A number in brackets alone is an equation's, as both papers cite it.
  const EQUATION = /^\s*(\(\d+\))\s*$/;
  // "W&N equation (13)" is looked for among the claims of its paper.
  const PAPER = /^\s*(W&N|LHG)(?:'s)?,? +(?=\S)/i;
  const KINDS = { section: "section", claim: "claim", api: "package" };

  const field = document.querySelector(".bd-search-container form.bd-search input");
  const filter = document.querySelector(".search-filter");
  const status = document.getElementById("search-status");
  const list = document.getElementById("search-results");

  // GPClassifier.fit is found as "gpclassifier", "classifier" and "fit".
  const apart = (name) =>
    name.replace(/(\p{Ll})(\p{Lu})/gu, "$1 $2").replace(/(\p{Lu})(\p{Lu}\p{Ll})/gu, "$1 $2");
  const telling = (words) => words.filter((word) => !STOP.has(word));
  const whole = (words) => words.replace(/\b(ep|gp)\b/g, (short) => `${short} ${WHOLE[short]}`);
  // With a space before each, as asWords has them; all of them where none tells anything.
  const told = (words) => ["", ...telling(words.split(" ").slice(1))].join(" ") || words;
  const stemmed = new Map(); // the same words come again and again
  function stem(word) {
    if (!stemmed.has(word)) stemmed.set(word, elasticlunr.stemmer(word));
    return stemmed.get(word);
  }
  const stems = (words) => whole(words).split(" ").slice(1).map(stem);
  const said = (text) => stems(told(asWords(text)));
  const pairs = (list) => list.slice(1).map((word, place) => `${list[place]} ${word}`);
  const prose = (text) => text.replace(/\$[^$]*\$/g, " ");
  const pageOf = (entry) => entry.url.split("#")[0];

  const known = new Map(); // how many entries have a word
  const pages = new Map(); // what a page's places say together
  const entries = SEARCH_INDEX.map((entry, id) => {
    const words = asWords(entry.title) + asWords(entry.where) + asWords(prose(entry.text));
    const asks = entry.asked ?? [];
    for (const word of new Set(`${words}${asks.map(asWords).join("")}`.split(" "))) {
      known.set(word, (known.get(word) ?? 0) + 1);
    }
    const title = entry.kind === "api" ? `${entry.title} ${apart(entry.title)}` : entry.title;
    const fields = { title: [said(title)], asked: asks.map(said), text: [said(prose(entry.text))] };
    if (!pages.has(pageOf(entry))) pages.set(pageOf(entry), { title: [], asked: [], text: [] });
    const page = pages.get(pageOf(entry));
    page.text.push(...fields.text);
    if (entry.kind !== "claim") page.title.push(...fields.title);
    page.asked.push(...fields.asked);
    // "W&N, Section 5, Table 2" bears the name "Table 2"; "Theorem 8: which way?" what stands first.
    const name = entry.kind === "claim" ? entry.title.split(",").pop() : entry.title.split(/:| \(/)[0];
    return { ...entry, id, words, fields, name: said(name).join(" ") };
  });

  // For each word and pair the documents that have it, and how often, the less the longer a field.
  function frequencies(documents, fields) {
    const found = new Map();
    for (const field of fields) {
      const sizes = documents.map((document) => document[field].flat().length);
      const mean = sizes.reduce((sum, size) => sum + size, 0) / sizes.filter((size) => size > 0).length;
      documents.forEach((document, place) => {
        const once = FIELDS[field] / (1 - LENGTH + (LENGTH * sizes[place]) / mean);
        for (const term of document[field].flatMap((list) => [...list, ...pairs(list)])) {
          if (!found.has(term)) found.set(term, new Map());
          found.get(term).set(place, (found.get(term).get(place) ?? 0) + once);
        }
      });
    }
    return found;
  }

  const numbers = new Map([...pages.keys()].map((page, number) => [page, number]));
  const inPages = frequencies([...pages.values()], Object.keys(FIELDS));
  const inPlaces = frequencies(entries.map((entry) => entry.fields), Object.keys(FIELDS));
  const inHeads = frequencies([...pages.values()], ["title", "asked"]);

  // The more, the fewer pages have it in titles or phrases.
  function weight(term) {
    const having = inHeads.get(term)?.size ?? 0;
    return Math.log(1 + (pages.size - having + 0.5) / (having + 0.5)) * (term.includes(" ") ? PAIR : 1);
  }

  function scores(found, terms) {
    const sums = new Map();
    for (const term of terms) {
      for (const [place, count] of found.get(term) ?? []) {
        sums.set(place, (sums.get(place) ?? 0) + (weight(term) * count) / (count + SATURATION));
      }
    }
    return sums;
  }

  // Insertions, deletions, replacements and swaps of neighbours from one word to another.
  function distance(a, b) {
    const rows = [[...Array(b.length + 1).keys()]];
    for (let i = 1; i <= a.length; i++) {
      rows.push([i]);
      for (let j = 1; j <= b.length; j++) {
        rows[i][j] = Math.min(
          rows[i - 1][j] + 1,
          rows[i][j - 1] + 1,
          rows[i - 1][j - 1] + (a[i - 1] !== b[j - 1]),
          i > 1 && j > 1 && a[i - 1] === b[j - 2] && a[i - 2] === b[j - 1] ? rows[i - 2][j - 2] + 1 : Infinity,
        );
      }
    }
    return rows[a.length][b.length];
  }

  // The nearest word of the book to one that begins none; of those as near, the commonest.
  function corrected(word) {
    const all = [...known.keys()];
    if (word.length < 4 || all.some((other) => other.startsWith(word))) return word;
    const near = all
      .filter((other) => Math.abs(other.length - word.length) <= 2)
      .map((other) => [distance(word, other), -known.get(other), other])
      .filter(([steps]) => steps <= (word.length < 7 ? 1 : 2))
      .sort((a, b) => a[0] - b[0] || a[1] - b[1]);
    return near.length ? near[0][2] : word;
  }

  // As one types, a word stands for those that it begins.
  function terms(words) {
    const asked = stems(words);
    const begun = (word) => [...inPages.keys()].filter((term) => !term.includes(" ") && term.startsWith(word));
    return new Set([...asked.flatMap((word) => (inPages.has(word) ? [word] : begun(word))), ...pairs(asked)]);
  }

  // More than what words say: what bears them as its name comes first, the shorter the rest of the
  // name the better, and a page before its sections; claims of one name are equally good.
  function weigh(entry, score, wanted, query) {
    if (entry.kind === "api") {
      const named = /\p{Lu}/u.test(query) && entry.title.split(".").includes(query.trim());
      return named ? 2 * NAMED + score : PACKAGE * score;
    }
    const plain = entry.where ? score : PAGE * score;
    if (!` ${entry.name} `.includes(` ${wanted} `)) return plain;
    const share = wanted.length / entry.name.length;
    return NAMED * (entry.where ? share : share + 1) + (entry.kind === "claim" ? 0 : plain);
  }

  function find(query) {
    const quoted = /^\s*["“].+["”]\s*$/.test(query);
    const paper = query.match(PAPER)?.[1].toUpperCase();
    const place = query.replace(PAPER, "").replace(LINE, "").replace(EQUATION, "equation $1");
    const typed = (quoted ? asWords(query) : told(asWords(place))).split(" ").slice(1);
    const meant = typed.map((word) => corrected(word));
    const wanted = ` ${meant.join(" ")}`;
    const asked = terms(wanted);
    const byPage = scores(inPages, asked);
    const byPlace = scores(inPlaces, asked);
    let found = entries
      .filter((entry) => byPlace.has(entry.id) || (!entry.where && byPage.has(numbers.get(pageOf(entry)))))
      .map((entry) => {
        const page = byPage.get(numbers.get(pageOf(entry))) ?? 0; // a claim's title is its own
        const score = page + (byPlace.get(entry.id) ?? 0) + prior(pages.get(pageOf(entry)));
        return { entry, score: weigh(entry, score, stems(wanted).join(" "), query) };
      });
    if (quoted) found = found.filter(({ entry }) => `${entry.words} `.includes(`${wanted} `));
    if (paper) found = found.filter(({ entry }) => entry.kind !== "claim" || entry.title.startsWith(paper));
    const { kind, verdict } = filter.elements;
    found = found.filter(
      ({ entry }) =>
        (!kind.value || entry.kind === kind.value) && (!verdict.value || entry.verdict === verdict.value),
    );
    // What is equally good goes by the order of the ledger and of the book.
    found.sort((a, b) => b.score - a.score || a.entry.id - b.entry.id);
    return { found: found.map(({ entry }) => entry), meant, typed };
  }

  function make(tag, attributes, ...content) {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    element.append(...content);
    return element;
  }

  // Around the first of the words; a formula is whole or left out.
  function excerpt(text, meant) {
    const at = Math.min(
      ...meant.map((word) => text.toLowerCase().indexOf(word)).filter((place) => place >= 0),
      text.length,
    );
    let start = at === text.length || at < EXCERPT / 2 ? 0 : text.lastIndexOf(" ", at - EXCERPT / 3) + 1;
    if (text.slice(0, start).split("$").length % 2 === 0) start = text.lastIndexOf("$", start - 1);
    let end = text.length <= start + EXCERPT ? text.length : text.lastIndexOf(" ", start + EXCERPT);
    if (text.slice(0, end).split("$").length % 2 === 0) end = text.indexOf("$", end) + 1;
    const parts = text.slice(start, end).split("$");
    return make(
      "p",
      { class: "excerpt" },
      start ? "… " : "",
      ...parts.flatMap((part, place) => (place % 2 ? [make("span", { class: "math" }, `\\(${part}\\)`)] : marked(part, meant))),
      end < text.length ? " …" : "",
    );
  }

  function marked(text, meant) {
    const words = meant.filter((word) => word.length > 1);
    if (words.length === 0) return [text];
    return text
      .split(new RegExp(`(${words.join("|")})`, "iu"))
      .map((part, place) => (place % 2 ? make("mark", {}, part) : part));
  }

  function item(entry, meant) {
    const link = make("a", { href: entry.url });
    link.append(
      ...entry.title
        .split("$")
        .map((part, place) => (place % 2 ? make("span", { class: "math" }, `\\(${part}\\)`) : part)),
    );
    const line = make("p", { class: `claim-${(entry.verdict ?? "").replaceAll(" ", "-")}` }, link, " ");
    if (entry.verdict) line.append(make("span", { class: "claim-verdict" }, entry.verdict));
    line.append(make("span", { class: "kind" }, ` ${KINDS[entry.kind]}${entry.where && `, in ${entry.where}`}`.replace(/\$/g, "")));
    return make("li", {}, line, excerpt(entry.text, meant));
  }

  async function show() {
    const { found, meant, typed } = field.value.trim() ? find(field.value) : { found: [], meant: [], typed: [] };
    list.replaceChildren(...found.slice(0, SHOWN).map((entry) => item(entry, meant)));
    const instead = typed
      .map((word, place) => (word === meant[place] ? "" : `No “${word}”; shown is “${meant[place]}”. `))
      .join("");
    const more = found.length > SHOWN ? `, the first ${SHOWN} shown` : "";
    status.textContent = typed.length ? `${instead}${found.length} places${more}` : "";
    await window.MathJax?.startup?.promise;
    window.MathJax?.typesetPromise?.([list]);
  }

  const verdicts = [...new Set(entries.map((entry) => entry.verdict).filter(Boolean))];
  filter.elements.verdict.append(...verdicts.map((verdict) => make("option", {}, verdict)));
  field.value = new URLSearchParams(location.search).get("q") ?? "";
  field.focus();
  field.select();
  field.addEventListener("input", show);
  field.form.addEventListener("submit", (event) => {
    event.preventDefault();
    show();
  });
  filter.addEventListener("input", show);
  show();
})();
