// Stands in for Google Charts: data tables are kept, tables are drawn plainly, charts are not.
(() => {
  class DataTable {
    constructor() { this.columns = []; this.rows = []; }
    addColumn(...column) { this.columns.push(typeof column[0] === "object" ? column[0].label ?? "" : column[1] ?? ""); }
    addRow(row) { this.rows.push(row); }
    addRows(rows) { this.rows.push(...rows); }
    getNumberOfRows() { return this.rows.length; }
    getNumberOfColumns() { return this.columns.length; }
    getColumnLabel(column) { return this.columns[column]; }
    getValue(row, column) { return this.rows[row][column]; }
    setProperty() {}
    getTableProperties() { return {}; }
  }
  class Chart {
    constructor(place) { this.place = place; }
    draw() {}
    clearChart() { this.place.replaceChildren(); }
    setSelection() {}
    getSelection() { return []; }
  }
  class Table extends Chart {
    draw(data) {
      const made = document.createElement("table");
      const add = (texts) => {
        const row = made.insertRow();
        for (const text of texts) row.insertCell().textContent = text?.f ?? text?.v ?? text ?? "";
      };
      add(data.columns);
      data.rows.forEach(add);
      this.place.replaceChildren(made);
    }
  }
  const visualization = new Proxy(
    { DataTable, Table, arrayToDataTable: () => new DataTable(), events: { addListener() {} } },
    { get: (known, name) => known[name] ?? Chart },
  );
  window.google = { charts: { load: async () => {}, setOnLoadCallback: (call) => call() }, visualization };
})();
