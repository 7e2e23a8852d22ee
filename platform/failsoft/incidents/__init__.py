"""Incidents of serving: found in the ledger, drawn from the answers, told on one page."""
