"""Every error that this project raises on purpose, in one tree.

VectorSearchError
├── InvalidInput (ValueError)
│   ├── DimensionMismatch
│   ├── DuplicateId
│   ├── EmptyQuery
│   ├── InvalidDocument
│   ├── NonFiniteVector
│   └── UnknownMode
...
"""
