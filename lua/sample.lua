-- sample: record the partition's totals and sizes for its history, once a minute. May run concurrently.
--
-- LIBS  lib/base.lua
-- KEYS  base         the partition's hash, e.g. {sublet:0}; every other key is base .. ":" .. name
-- ARGV  queued       how many jobs are queued, as the caller counted them; empty if it did not
-- ARGV  due          ms when the first of them was due; empty without one
-- REPLY array        ["sampled"; "kept": this minute has a sample; or "count": there are unfinished jobs, so call
--                    again with the numbers, the present moment in ms]
-- CODE  NO_NAMESPACE WRONG_LAYOUT INVALID

local MINUTES, HOURS = 1440, 720            -- samples kept: a day by minutes, 30 days by hours
local WIDTH = 128                           -- bytes of a sample
local queued, due = ARGV[1] or '?', ARGV[2] or '?'
local refused_because = refused(1, 1)
if refused_because then return refused_because end
for _, number in ipairs({queued, due}) do
  if number ~= '' and not ms(number) then
    return refusal('INVALID', 'queued and due: use a number of up to 14 digits, or nothing')
  end
end
local minutes, hours = key('minutes'), key('hours')
call('STRLEN', minutes)
call('STRLEN', hours)
local totals = call('HMGET', base, 'submitted', 'completed', 'failed', 'dead', 'cancelled', 'expired')
-- "<ms> <samples> <hours>": the last sample, and how many were stored in each ring
local last, n, all = string.match(call('HGET', base, 'sampled') or '', '^(%d+) (%d+) (%d+)$')
last, n, all = ms(last), ms(n), ms(all)
if not (last and n and all) then last, n, all = 0, 0, 0 end
local function period(at, length) return math.floor(at / length) end
local function answer(word) return {word, now} end
if n > 0 and period(last, 60000) == period(now, 60000) then return answer('kept') end
if queued == '' and call('HLEN', key('backlog')) > 0 then return answer('count') end
if all == 0 or period(last, 3600000) ~= period(now, 3600000) then all = all + 1 end

local cells = {}
local function write(number, width)
  cells[#cells + 1] = string.format('%' .. width .. '.0f', math.min(number, 10 ^ width - 1))
end
write(now, 13)
for i = 1, 6 do write(tonumber(whole_number(totals[i], 0)), 13) end
local age = ms(due) and math.max(0, math.floor((now - ms(due)) / 1000)) or 0
local marks = peek('SCARD', key('unsettled'))
local scheduled = math.max(0, sizes.scheduled - (type(marks) == 'number' and marks or 0))
for _, held in ipairs({scheduled, ms(queued) or 0, sizes.running, age}) do write(held, 9) end
local sample = table.concat(cells) .. '\n'
begin()
call('SETRANGE', minutes, n % MINUTES * WIDTH, sample)
call('SETRANGE', hours, (all - 1) % HOURS * WIDTH, sample)
call('HSET', base, 'sampled', stamp .. ' ' .. digits(n + 1) .. ' ' .. digits(all))
return answer('sampled')
