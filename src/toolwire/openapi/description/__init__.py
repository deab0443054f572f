"""API descriptions: documents, references, overlays, Swagger 2.0, and the operations in them."""
