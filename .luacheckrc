-- What Redis gives a script. Each script is checked with lib.lua, queue.lua and life.lua in front of it, as Redis runs it.
std = "lua51"
read_globals = {"redis", "KEYS", "ARGV"}
max_line_length = 140
