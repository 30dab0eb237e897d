"""Tables, JSON and the Hub: from bytes to rows."""
