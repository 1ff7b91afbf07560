"""Compare records with synthetic ones: private, for the data holder's eyes only."""
