"""What trimtab costs and what it keeps, measured. Every figure of the README comes from here."""
