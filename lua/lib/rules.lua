-- lib/rules: are the rules of a job valid? For the scripts that take rules from callers, or look for invalid ones. It
-- needs base.
-- luacheck: push ignore 211
-- Is this a valid value of `tags`? It may be longer than 128 characters.
local function are_tags(value)
  local seen, n = {}, 0
  for tag in string.gmatch(value .. ',', '([^,]*),') do
    n = n + 1
    if n > 5 or seen[tag] or #tag > 64 or not is_name(tag) then return false end
    seen[tag] = true
  end
  return true
end

-- The first rule that is not in `known`, occurs twice, or has an invalid value, and what to do about it; nil if
-- all rules are valid.
local shapes
local function invalid_rule(rules, known)
  if rules == '' then return nil end
  if not shapes then
    -- 14 digits in all reach the year 5138; a short digest's digits
    local more, hex = string.rep('%d?', 13), string.rep('%x', 16)
    local number, some = '^%d' .. more .. '$', '^[1-9]' .. more .. '$'
    shapes = {priority = '^%-?%d%d?%d?$', delay = number, at = number, window = some, tries = some,
      timeout = number, stall = some, retention = number, backoff = '^%d' .. more .. ':%d+%.?%d*:%d' .. more .. '$',
      key = '^[!-~]+$', group = '^[!-~]+$', cost = some, tags = '^[%w_.:,-]+$', trace = '^%x[%x-]+$',
      digest = '^' .. hex .. '%x*$', schedule = '^[%w_.:-]+$', death = '^[%w_.:-]+$', keep = '^1$', known = '^1$',
      debounce = some, at_most = some, on_conflict = '^[%l_]+$', onto = '^[%w_.:-]+$', after = '^[%w_.:-]+$',
      replaced = '^%d+:%d+$', tried = number, on_failure = '^%l+$', give_up = some, workflow = '^[%w_.:-]+$'}
  end
  local given = {}
  for word in string.gmatch(rules .. ' ', '([^ ]*) ') do
    local name, value = string.match(word, '^([%w_]+)=(.+)$')
    local allowed = name and not given[name] and (#value <= 128 or name == 'tags')
      and (not known or string.find(known, ' ' .. name .. ' ', 1, true))
    local fits = allowed and (string.find(value, shapes[name] or '^$') or word == 'timeout=none')
    if not fits or name == 'priority' and math.abs(value) > 100 or name == 'tags' and not are_tags(value)
      or name == 'group' and string.find(value, '^%.%.?$') then
      local names = known
        or ' priority delay at key window tries timeout stall retention backoff tags group cost keep trace digest schedule death debounce '
        .. 'at_most on_conflict onto known '
      local values = {priority = '-100 to 100', tries = 'a number from 1, at most 14 digits', cost = 'a number from 1, at most 14 digits',
        timeout = 'ms or none', backoff = 'first ms:factor:cap ms', key = '1 to 128 of ! to ~',
        group = '1 to 128 of ! to ~, but not . or .. alone',
        tags = '1 to 5 different ones, each 1 to 64 of ' .. NAME .. ', with commas in between',
        trace = 'a traceparent', digest = '16 to 128 hexadecimal digits',
        schedule = 'a name', death = 'an id', onto = 'an id', keep = '1', known = '1',
        on_conflict = 'replace or cancel_running'}
      for some_ms in string.gmatch('window stall debounce at_most', '%S+') do values[some_ms] = 'ms from 1, at most 14 digits' end
      local is_known = name and string.find(names, ' ' .. name .. ' ', 1, true)
      local advice = not is_known and 'use name=value, the name one of' .. string.sub(names, 1, -2)
        or given[name] and 'give it once' or 'use ' .. (values[name] or 'ms, at most 14 digits')
      return string.sub(word, 1, 80), ': ' .. advice
    end
    given[name] = true
  end
end
-- luacheck: pop
