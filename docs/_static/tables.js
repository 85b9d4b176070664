// The tables with a column "case", a row for each measurement: sorted by a click on a heading,
// searched by the field above them.
import { ITable } from "./dt_bundle.js";

for (const table of document.querySelectorAll("article table"))
  if ([...table.querySelectorAll("th")].some((heading) => heading.textContent === "case"))
    new ITable(table, { paging: false, order: [], autoWidth: false });
