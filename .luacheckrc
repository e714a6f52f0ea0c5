-- What Redis gives a script. Each script is checked with the libraries that its header names in front of it, as Redis runs it.
std = "lua51"
read_globals = {"redis", "KEYS", "ARGV"}
max_line_length = 140
max_comment_line_length = 280  -- the list of libraries is one line
