"""Everything that watches a server: the audit log, metrics, and spans of OpenTelemetry."""
