"""The pages at /_ui, asked over real HTTP and opened in a real browser."""
