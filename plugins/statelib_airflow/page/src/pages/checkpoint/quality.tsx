import type { CheckpointDetail, QualityResult } from "../../api";
import { count, plural } from "../../format";
import { Badge, SEVERITIES } from "../../parts/badge";
import { Empty } from "../../parts/loaded";
import { Section } from "../../parts/text";
import { apiUrl } from "../../requests";

export function Quality({ detail }: { detail: CheckpointDetail }) {
  const results = detail.quality;
  const failed = results.filter((one) => !one.passed);
  const passed = results.filter((one) => one.passed);
  return (
    <Section title="Quality" id="quality" aside={detail.report && <DocsLink detail={detail} />}>
      {results.length === 0 && <Empty title="Not judged">{detail.state === "PENDING" ? "The gate judges it once it is written." : "No results of the gate are kept for it."}</Empty>}
      {failed.length > 0 && (
        <ul className="results">
          {failed.map((one) => (
            <Result key={`${one.group}/${one.name}`} result={one} />
          ))}
        </ul>
      )}
      {passed.length > 0 && (
        <details className="passed" open={failed.length === 0 && passed.length <= 6}>
          <summary>
            <Badge tone="good" shape="tick">
              {plural(passed.length, "check")} passed
            </Badge>
          </summary>
          <ul className="results">
            {passed.map((one) => (
              <Result key={`${one.group}/${one.name}`} result={one} />
            ))}
          </ul>
        </details>
      )}
    </Section>
  );
}

function DocsLink({ detail }: { detail: CheckpointDetail }) {
  const href = apiUrl(`pipelines/${encodeURIComponent(detail.pipeline)}/checkpoints/${detail.checkpoint_id}/report/index.html`);
  return (
    <a className="button small" target="_blank" rel="noopener" href={href}>
      Data Docs
    </a>
  );
}

function Result({ result }: { result: QualityResult }) {
  const { tone, shape, word } = result.passed ? { tone: "good" as const, shape: "tick" as const, word: "Passed" } : SEVERITIES[result.severity];
  return (
    <li className="result">
      <Badge tone={tone} shape={shape}>
        {word}
      </Badge>
      <div>
        <p className="name">
          <code>{result.name}</code> <span className="sub">{result.group}</span>
          {result.checked !== null && (
            <span className="sub">
              {" "}
              · {count(result.checked)} checked{!!result.failed && `, ${count(result.failed)} failed`}
            </span>
          )}
        </p>
        {result.sentences.map((sentence) => (
          <p key={sentence} className={result.passed ? "sub" : ""}>
            {sentence}
          </p>
        ))}
      </div>
    </li>
  );
}
