"""Readers of the ledger: consumers, subscriptions, and what they are made of."""
