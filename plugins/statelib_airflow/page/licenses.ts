// LICENSES beside the built files: the licence of every library that is in them.
import { readdirSync, readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import type { Plugin } from "vite";

export function licenses(): Plugin {
  return {
    name: "licenses",
    generateBundle(_, bundle) {
      const modules = Object.values(bundle).flatMap((file) => (file.type === "chunk" ? Object.keys(file.modules) : []));
      const homes = new Set(modules.flatMap((id) => homeOf(id) ?? []));
      const texts = [...homes].map(textOf).sort();
      this.emitFile({ type: "asset", fileName: "LICENSES", source: texts.join(`\n${"-".repeat(80)}\n\n`) });
    },
  };
}

/** The directory of the package that a module belongs to. */
function homeOf(id: string): string | null {
  const found = /^(.*\/node_modules\/(?:@[^/]+\/)?[^/]+)\//.exec(id.replaceAll("\\", "/").replace("\0", ""));
  return found?.[1] ?? null;
}

function textOf(home: string): string {
  const about = JSON.parse(readFileSync(join(home, "package.json"), "utf8")) as { name: string; version: string; license: string };
  const file = readdirSync(home).find((name) => /^licen[cs]e/i.test(name));
  if (!file) throw new Error(`${about.name} has no licence file in ${dirname(home)}`);
  return `${about.name} ${about.version} (${about.license})\n\n${readFileSync(join(home, file), "utf8").trim()}\n`;
}
