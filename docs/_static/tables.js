// The tables of the page: sorted by a click on a heading, searched by the field above them.
import { ITable } from "./dt_bundle.js";

document.querySelectorAll("article table").forEach((table) => {
  new ITable(table, { paging: false, info: true, order: [], autoWidth: false });
});
