import type { CheckpointDetail, CheckpointFile } from "../../api";
import { bytes, grouped, percent, plural } from "../../format";
import { Parts } from "../../parts/bars";
import { type Column, Table } from "../../parts/table";
import { Id, Section, Shown, Size } from "../../parts/text";

const MOST_NAMED = 4;

export function Files({ detail, files }: { detail: CheckpointDetail; files: CheckpointFile[] }) {
  const { pipeline, checkpoint_id: id } = detail;
  const origins = originsOf(files, id);
  const total = files.reduce((sum, file) => sum + file.size_bytes, 0);
  return (
    <Section title="Files" id="files" aside={<Shown shown={files.length} total={detail.files_total} what="file" more={bytes(total)} />}>
      {origins.length > 1 && (
        <div className="origins">
          <h3>Who wrote the bytes</h3>
          <ul>
            {origins.slice(0, 8).map((one) => (
              <li key={one.id ?? "unknown"}>
                <span className="who">
                  {one.id === null ? "unknown" : <Id pipeline={pipeline} id={one.id} />}
                  {one.id === id && <small> itself</small>}
                </span>
                <Parts parts={[[one.id === id ? "alone" : "shared", one.bytes]]} whole={origins[0] ? Math.max(...origins.map((other) => other.bytes)) : 1} />
                <span className="much">
                  {bytes(one.bytes)} <small>{total > 0 && percent(one.bytes / total)}</small>
                </span>
              </li>
            ))}
          </ul>
          {origins.length > 8 && <p className="sub">and {plural(origins.length - 8, "other checkpoint")}</p>}
        </div>
      )}
      <Table caption="Files" columns={columnsOf(detail)} rows={files} rowKey={(file) => file.path} first={{ by: "path", down: false }} pageRows={20} />
    </Section>
  );
}

/** Bytes by the checkpoint that wrote them, the newest first. */
export function originsOf(files: CheckpointFile[], id: number): { id: number | null; bytes: number }[] {
  const sums = new Map<number | null, number>();
  for (const file of files) {
    const writer = file.created_by ?? (file.scope === "exclusive" ? id : null);
    sums.set(writer, (sums.get(writer) ?? 0) + file.size_bytes);
  }
  return [...sums].map(([writer, size]) => ({ id: writer, bytes: size })).sort((one, other) => (other.id ?? 0) - (one.id ?? 0));
}

/** As seen from the checkpoint's directory: its pipeline's other directories, such as that of shared files, are beside it. */
export function seenFrom(directory: string, path: string): string {
  const around = directory.replace(/[^/]*\/?$/, "");
  return around && path.startsWith(around) ? `../${path.slice(around.length)}` : path;
}

function columnsOf({ pipeline, checkpoint_id: id, directory }: CheckpointDetail): Column<CheckpointFile>[] {
  return [
    {
      id: "path",
      head: "Path",
      names: true,
      by: (file) => file.path,
      cell: (file) => (
        <code className="path" title={file.path}>
          {seenFrom(directory, file.path)}
        </code>
      ),
    },
    { id: "size", head: "Size", number: true, by: (file) => file.size_bytes, cell: (file) => <Size value={file.size_bytes} /> },
    {
      id: "groups",
      head: "Key groups",
      number: true,
      by: (file) => file.key_groups[0],
      cell: (file) => `${file.key_groups[0]}–${file.key_groups[1]}`,
    },
    { id: "crc", head: "CRC-32C", cell: (file) => <code>{file.crc32c}</code> },
    {
      id: "writer",
      head: "Written by",
      number: true,
      by: (file) => file.created_by,
      cell: (file) => (file.created_by === null ? <span className="none">–</span> : file.created_by === id ? "itself" : <Id pipeline={pipeline} id={file.created_by} />),
    },
    {
      id: "shared",
      head: "Shared with",
      by: (file) => file.shared_with_total,
      cell: (file) => <SharedWith pipeline={pipeline} file={file} />,
    },
  ];
}

function SharedWith({ pipeline, file }: { pipeline: string; file: CheckpointFile }) {
  if (file.shared_with.length === 0) return <span className="none">{file.scope === "shared" ? "nobody now" : "exclusive"}</span>;
  const named = file.shared_with.toSorted((one, other) => other - one);
  return (
    <span className="ids">
      {named.slice(0, MOST_NAMED).map((id) => (
        <Id key={id} pipeline={pipeline} id={id} />
      ))}
      {file.shared_with_total > MOST_NAMED && <small title={named.join(", ")}>and {grouped(file.shared_with_total - MOST_NAMED)} more</small>}
    </span>
  );
}
