"""Tools of servers in the loop of a model: definitions, answers and search for OpenAI, Anthropic and Gemini."""
