-- lib/audit: the capped stream of orders that people gave. It needs base.
-- luacheck: push ignore 211
local KEEP_AUDIT = 1000                     -- entries kept in the stream

-- Before the first write: a stream of a wrong type raises here. Without `by` nothing is read or written.
local function check_audit(by) if by and by ~= '' then call('XLEN', key('audit')) end end

-- Record an order that was carried out; returns its outcome.
local function audit(by, verb, what, queue, outcome, order)
  if not by or by == '' then return outcome end
  call('XADD', key('audit'), 'MAXLEN', '~', KEEP_AUDIT, '*', 'by', string.sub(by, 1, 128), 'verb', verb,
    'what', string.sub(what, 1, 200), 'queue', queue, 'outcome', string.sub(outcome, 1, 200),
    'order', order or '')
  return outcome
end
-- luacheck: pop
