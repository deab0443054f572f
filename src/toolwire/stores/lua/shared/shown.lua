local function shown(name, now)
    local place = place_of(name)
    if not place then return false end
    if place.process then return {'held', place.process, place.kind} end
    return {'ready', place.kind, place.owner, string.format('%.17g', math.max(place.since - now, 0))}
end
