"""Lock files of APIs, and the differences between a lock and the API of today."""
