"""Retention, deletion and the sweep of orphans."""
