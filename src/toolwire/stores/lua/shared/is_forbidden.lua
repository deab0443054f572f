local function is_forbidden(text)
    return string.find(text, "can't run", 1, true) or string.find(text, 'permission', 1, true)
end
