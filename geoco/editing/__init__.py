"""The editor: scenes as values, requests for edits, recordings that replay exactly."""
