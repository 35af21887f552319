-- Let all others write again. ARGV: by which name they were shut out.
if call('GET', prefix .. 'alone') == ARGV[1] then
    call('UNLINK', prefix .. 'alone')
end
return 1
