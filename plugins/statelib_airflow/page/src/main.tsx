import { QueryClientProvider } from "@tanstack/react-query";
import { StrictMode } from "react";
import { createRoot } from "react-dom/client";
import { App } from "./app";
import { followTheme, leaveBy } from "./frame";
import { newClient } from "./queries";
import "./style/tokens.css";
import "./style/layout.css";
import "./style/parts.css";
import "./style/tables.css";
import "./style/charts.css";

followTheme();
document.addEventListener("click", leaveBy);
document.addEventListener("auxclick", leaveBy);

const root = document.getElementById("root");
if (root) {
  createRoot(root).render(
    <StrictMode>
      <QueryClientProvider client={newClient()}>
        <App />
      </QueryClientProvider>
    </StrictMode>,
  );
}
