-- init: make a namespace's base, once; safe to repeat.
--
-- LIBS  lib.lua
-- KEYS  base         the partition's hash, e.g. {sublet:0}; every other key is base .. ":" .. name
-- REPLY string       the layout that the namespace has
-- CODE  WRONG_LAYOUT another version of this table lives here

local layout = call('HGET', base, 'layout')
if not layout then call('HSET', base, 'layout', LAYOUT) end
if layout and layout ~= LAYOUT then return refused(0, 0) end
return LAYOUT
