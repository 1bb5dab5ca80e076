import react from "@vitejs/plugin-react";
import { defineConfig } from "vitest/config";
import { licenses } from "./licenses.ts";

export default defineConfig(async ({ mode }) => ({
  base: "./",
  plugins: [react(), licenses(), ...(mode === "mock" ? [(await import("./mock/server.ts")).mock()] : [])],
  build: {
    target: "es2023",
    outDir: "dist",
    emptyOutDir: true,
    sourcemap: false,
    modulePreload: false,
    assetsInlineLimit: 0,
    reportCompressedSize: false,
  },
  test: { environment: "jsdom", include: ["test/**/*.test.{ts,tsx}"], restoreMocks: true, testTimeout: 60_000 },
}));
