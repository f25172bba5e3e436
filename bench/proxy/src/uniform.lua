-- Asks for the paths listed in a file, each as likely as any other. The requests are made beforehand: what is
-- measured is the server.
local requests = {}

function init()
  for path in io.lines(os.getenv("BENCH_PATHS")) do
    requests[#requests + 1] = wrk.format("GET", path)
  end
  math.randomseed(42)
end

function request()
  return requests[math.random(#requests)]
end
