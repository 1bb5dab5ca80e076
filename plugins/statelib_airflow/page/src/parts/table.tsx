// A table that sorts by its headings, pages, and becomes cards on a narrow screen. Roles are written out, because
// cards take the display of a table away, and with it what a screen reader would know.
import { type ReactNode, useId, useMemo, useState } from "react";
import { grouped } from "../format";

export interface Column<Row> {
  id: string;
  head: string;
  cell: (row: Row) => ReactNode;
  /** What the rows are sorted by here; the API sorts if the table is given `sort`. */
  by?: (row: Row) => number | string | null;
  sortable?: boolean;
  number?: boolean;
  /** The one cell that names its row. */
  names?: boolean;
  /** Its heading is for screen readers only. */
  bare?: boolean;
  /** Left out of cards. */
  wideOnly?: boolean;
}

export interface Sort {
  by: string;
  down: boolean;
}


interface TableProps<Row> {
  caption: string;
  columns: Column<Row>[];
  rows: Row[];
  rowKey: (row: Row) => string | number;
  first?: Sort;
  sort?: Sort;
  onSort?: (sort: Sort) => void;
  pageRows?: number;
  tone?: (row: Row) => string | undefined;
}

export function Table<Row>(props: TableProps<Row>) {
  const { caption, columns, rows, rowKey, pageRows, tone } = props;
  const [own, setOwn] = useState<Sort | null>(props.first ?? null);
  const [from, setFrom] = useState(0);
  const sort = props.sort ?? own;
  const change = (next: Sort) => {
    setFrom(0);
    (props.onSort ?? setOwn)(next);
  };
  const sorted = useMemo(() => (props.sort ? rows : sortedBy(rows, columns, own)), [rows, columns, own, props.sort]);
  const start = Math.min(from, Math.max(0, rows.length - 1));
  const shown = pageRows ? sorted.slice(start, start + pageRows) : sorted;
  return (
    <div className="table-box">
      <CardSort columns={columns} sort={sort} change={change} />
      <table role="table" className="table">
        <caption className="hidden">{caption}</caption>
        <thead role="rowgroup">
          <tr role="row">
            {columns.map((column) => (
              <Heading key={column.id} column={column} sort={sort} change={change} />
            ))}
          </tr>
        </thead>
        <tbody role="rowgroup">
          {shown.map((row) => (
            <tr role="row" key={rowKey(row)} data-tone={tone?.(row)}>
              {columns.map((column) => (
                <Cell key={column.id} column={column} row={row} />
              ))}
            </tr>
          ))}
        </tbody>
      </table>
      {pageRows !== undefined && rows.length > pageRows && (
        <Pager label={caption} from={start} rows={pageRows} total={rows.length} onChange={setFrom} />
      )}
    </div>
  );
}

function Cell<Row>({ column, row }: { column: Column<Row>; row: Row }) {
  const className = [column.number && "num", column.wideOnly && "wide-only", column.bare && "bare"].filter(Boolean).join(" ");
  const shared = { className, "data-label": column.bare ? undefined : column.head, children: column.cell(row) };
  return column.names ? <th role="rowheader" scope="row" {...shared} /> : <td role="cell" {...shared} />;
}

const sortableOf = <Row,>(column: Column<Row>) => column.sortable ?? column.by !== undefined;

function Heading<Row>({ column, sort, change }: { column: Column<Row>; sort: Sort | null; change: (sort: Sort) => void }) {
  const active = sort?.by === column.id;
  const className = [column.number && "num", column.wideOnly && "wide-only"].filter(Boolean).join(" ");
  const aria = active ? (sort.down ? "descending" : "ascending") : undefined;
  return (
    <th role="columnheader" scope="col" className={className} aria-sort={aria}>
      {sortableOf(column) ? (
        <button type="button" className="sort" onClick={() => change({ by: column.id, down: active ? !sort.down : !!column.number })}>
          {column.head}
          <svg viewBox="0 0 8 12" width="8" height="12" aria-hidden="true">
            <path className="up" d="M4 1 7 5H1z" />
            <path className="down" d="M4 11 1 7h6z" />
          </svg>
        </button>
      ) : column.bare ? (
        <span className="hidden">{column.head}</span>
      ) : (
        column.head
      )}
    </th>
  );
}

/** Cards have no headings to sort by. */
function CardSort<Row>({ columns, sort, change }: { columns: Column<Row>[]; sort: Sort | null; change: (sort: Sort) => void }) {
  const label = useId();
  const sortable = columns.filter(sortableOf);
  if (sortable.length < 2) return null;
  return (
    <div className="card-sort">
      <label htmlFor={label}>Sort by</label>
      <select id={label} value={sort?.by ?? ""} onChange={(event) => change({ by: event.target.value, down: sort?.down ?? true })}>
        {sort === null && <option value="">as listed</option>}
        {sortable.map((column) => (
          <option key={column.id} value={column.id}>
            {column.head}
          </option>
        ))}
      </select>
      {sort && (
        <button type="button" className="button small" onClick={() => change({ by: sort.by, down: !sort.down })}>
          {sort.down ? "descending" : "ascending"}
        </button>
      )}
    </div>
  );
}

export function Pager(props: { label: string; from: number; rows: number; total: number; onChange: (from: number) => void }) {
  const { from, rows, total, onChange } = props;
  const until = Math.min(from + rows, total);
  return (
    <nav className="pager" aria-label={`Pages: ${props.label}`}>
      <button type="button" className="button small" disabled={from === 0} onClick={() => onChange(Math.max(0, from - rows))}>
        Previous
      </button>
      <span aria-live="polite">
        {grouped(total === 0 ? 0 : from + 1)}–{grouped(until)} of {grouped(total)}
      </span>
      <button type="button" className="button small" disabled={until >= total} onClick={() => onChange(from + rows)}>
        Next
      </button>
    </nav>
  );
}

/** Sorted, stable; what is absent comes last in either direction. */
export function sortedBy<Row>(rows: Row[], columns: Pick<Column<Row>, "id" | "by">[], sort: Sort | null): Row[] {
  const by = columns.find((column) => column.id === sort?.by)?.by;
  if (!sort || !by) return rows;
  const sign = sort.down ? -1 : 1;
  return rows.toSorted((one, other) => {
    const [a, b] = [by(one), by(other)];
    if (a === null || b === null) return Number(a === null) - Number(b === null);
    return sign * (typeof a === "string" || typeof b === "string" ? String(a).localeCompare(String(b), "en", { numeric: true }) : a - b);
  });
}
