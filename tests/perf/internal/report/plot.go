package report

import (
	_ "embed"
	"fmt"
	"math"
	"strings"
	"text/template"
)

// Panel is one diagram of the plot.
type Panel struct {
	Title  string  `json:"title"`
	X      string  `json:"x"` // what the horizontal axis counts
	Y      string  `json:"y"` // what the vertical one counts
	Curves []Curve `json:"curves"`
}

// Curve is a named line through points of rising X. Between two points it keeps the value of
// the first: it shows counts.
type Curve struct {
	Name   string  `json:"name"`
	Points []Point `json:"points"`
}

// Point is a place on a curve, in the panel's own measures.
type Point struct {
	X float64 `json:"x"`
	Y float64 `json:"y"`
}

//go:embed plot.svg.tmpl
var plotTemplate string

// Sizes of the plot in SVG's user units.
const (
	plotWidth   = 860.0
	panelHeight = 300.0
	left        = 60.0
	right       = 230.0 // room for the legend
	top         = 40.0
	bottom      = 50.0
	ticks       = 5
)

// drawing is what the template shows.
type drawing struct {
	Width, Height float64
	Panels        []drawnPanel
}

type drawnPanel struct {
	Title, X, Y              string
	Left, Right, Top, Bottom float64 // of the area inside the axes
	XTicks, YTicks           []tick
	Curves                   []drawnCurve
}

type tick struct {
	At    float64
	Label string
}

type drawnCurve struct {
	Name, Path, Colour string
	LegendX, LegendY   float64
}

// SVG is the plot of all panels. A report without panels has none: "".
func (r Report) SVG() (string, error) {
	if len(r.Panels) == 0 {
		return "", nil
	}
	d := drawing{Width: plotWidth, Height: panelHeight * float64(len(r.Panels))}
	for i, p := range r.Panels {
		d.Panels = append(d.Panels, p.draw(panelHeight*float64(i)))
	}
	t, err := template.New("plot").Funcs(template.FuncMap{"html": template.HTMLEscapeString}).Parse(plotTemplate)
	if err != nil {
		return "", fmt.Errorf("parse the plot's template: %w", err)
	}
	var b strings.Builder
	if err := t.Execute(&b, d); err != nil {
		return "", fmt.Errorf("draw the plot: %w", err)
	}
	return b.String(), nil
}

// draw lays a panel out, y units from the top of the picture.
func (p Panel) draw(y float64) drawnPanel {
	d := drawnPanel{
		Title: p.Title, X: p.X, Y: p.Y,
		Left: left, Right: plotWidth - right, Top: y + top, Bottom: y + panelHeight - bottom,
	}
	var most Point
	for _, c := range p.Curves {
		for _, at := range c.Points {
			most = Point{X: max(most.X, at.X), Y: max(most.Y, at.Y)}
		}
	}
	stepX, stepY := step(most.X), step(most.Y)
	endX, endY := roundUp(most.X, stepX), roundUp(most.Y, stepY)
	place := func(at Point) Point {
		return Point{X: d.Left + at.X/endX*(d.Right-d.Left), Y: d.Bottom - at.Y/endY*(d.Bottom-d.Top)}
	}
	for v := 0.0; v <= endX*1.0001; v += stepX {
		d.XTicks = append(d.XTicks, tick{At: place(Point{X: v}).X, Label: number(v)})
	}
	for v := 0.0; v <= endY*1.0001; v += stepY {
		d.YTicks = append(d.YTicks, tick{At: place(Point{Y: v}).Y, Label: number(v)})
	}
	for i, c := range p.Curves {
		d.Curves = append(d.Curves, drawnCurve{
			Name: c.Name, Path: stairs(c.Points, place), Colour: colour(i),
			LegendX: d.Right + 14, LegendY: d.Top + 8 + 18*float64(i),
		})
	}
	return d
}

// stairs is the SVG path of a curve.
func stairs(points []Point, place func(Point) Point) string {
	var b strings.Builder
	for i, p := range points {
		at := place(p)
		if i == 0 {
			fmt.Fprintf(&b, "M%.1f %.1f", at.X, at.Y)
			continue
		}
		fmt.Fprintf(&b, "H%.1fV%.1f", at.X, at.Y)
	}
	return b.String()
}

// step is a round distance between ticks: 1, 2 or 5 times a power of ten.
func step(most float64) float64 {
	if most <= 0 {
		return 1
	}
	raw := most / ticks
	power := math.Pow(10, math.Floor(math.Log10(raw)))
	for _, factor := range []float64{1, 2, 5} {
		if factor*power >= raw {
			return factor * power
		}
	}
	return 10 * power
}

func roundUp(v, step float64) float64 { return max(step, math.Ceil(v/step-1e-9)*step) }

// colour gives curves colours that stay apart for colour-blind eyes too (the palette of Okabe and Ito).
func colour(i int) string {
	palette := []string{"#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000"}
	return palette[i%len(palette)]
}

// Distribution is the curve of the share of samples, in percent, that took at most so many milliseconds.
// The slowest hundredth is left out: it would squeeze the rest.
func Distribution(name string, sortedMs []float64) Curve {
	const points = 200
	c := Curve{Name: name, Points: []Point{{}}}
	n := len(sortedMs)
	for i := 1; i <= points*99/100; i++ {
		at := i * n / points
		if at == 0 {
			continue
		}
		c.Points = append(c.Points, Point{X: sortedMs[at-1], Y: float64(at) / float64(n) * 100})
	}
	return c
}
