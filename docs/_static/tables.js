// The tables with a column "case", a row for each measurement: sorted by a click on a heading,
// searched by the field above them.
import { ITable } from "./dt_bundle.js";

// "9.3 TF" comes before "10.1 TF", and these before "5 us": by unit, then by number.
function place(cell, kind) {
  const found = /^([\d.]+)[\s,]*([^\d]*)/.exec(cell.replace(/<[^>]*>/g, ""));
  return kind === "sort" && found
    ? `${found[2]} ${parseFloat(found[1]).toFixed(6).padStart(20, "0")}`
    : cell;
}

for (const table of document.querySelectorAll("article table")) {
  const headings = [...table.querySelectorAll("th")].map((heading) => heading.textContent);
  if (headings.includes("case"))
    new ITable(table, {
      paging: false,
      order: [],
      autoWidth: false,
      columnDefs: [{ targets: ["ours", "bar"].map((name) => headings.indexOf(name)), render: place }],
    });
}
