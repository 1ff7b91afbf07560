"""What a run keeps and must not lose: its journal, the ledger, a shared store, memory and threads."""
